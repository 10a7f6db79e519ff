"""Every C++ kernel on random shapes beside its plain formula: ``python tests/sanitizers/shapes.py NUMBER SEED``."""

import random
import sys
from contextlib import contextmanager
from unittest import mock

import torch

from transduce.config import RecurrentConfig, TransformerConfig
from transduce.kernels import (
    READS_NOTHING,
    AllowedTokens,
    Choices,
    Dropped,
    Heads,
    LogitColumns,
    RaggedAttention,
    RaggedLayout,
    Scoring,
    add_norm,
    attend_ragged,
    dropout,
    linear,
    linear_maps,
    native,
    prepack,
    projected_cross_entropy,
    rank_continuations,
    select_outputs,
)
from transduce.models import LAST_CROSS, NO_ATTENTION, NativeTransformer, Tokens, build, stacks

FORMATS = ("float32", "bfloat16", "int8")
# Rounding to bfloat16 moves a number by 2^-9 of itself at most, and products of few numbers sum that up.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.06}


@contextmanager
def plainly():
    """Nothing but PyTorch's operations."""
    with mock.patch.object(native, "_library", lambda: None):
        yield


def compare(compute, dtype):
    """What the kernels compute is what the formula says; NaN where that has one."""
    found = compute()
    with plainly():
        expected = compute()
    for one, other in zip(found, expected, strict=True):
        atol = TOLERANCE[dtype] * max(1.0, float(other.detach().abs().max()) if other.numel() else 1.0)
        torch.testing.assert_close(one.float(), other.float(), rtol=0, atol=atol)


def sizes(draw, batch, most):
    return [draw.randint(1, most) for _ in range(batch)]


def layout(lengths):
    return RaggedLayout.of(torch.tensor(lengths), max(lengths), torch.device("cpu"))


def by_tiles(name, *arguments):
    """The kernel of products, in tiles."""
    native.call(f"{name}_by_tiles", *arguments, 0)


def try_linear(draw):
    rows, inputs, outputs = draw.randint(1, draw.choice([20, 70])), draw.randint(1, 150), draw.randint(1, 200)
    bias = torch.randn(outputs) if draw.random() < 0.5 else None
    matrix = prepack(torch.randn(outputs, inputs), bias, draw.choice(FORMATS))
    if draw.random() < 0.5:
        matrix = select_outputs(matrix, torch.randint(0, outputs, (draw.randint(1, outputs),)))
    x, activation = torch.randn(rows, inputs), draw.choice([None, "relu", "gelu", "gelu_tanh", "silu"])
    module = sys.modules["transduce.kernels.products"]
    with mock.patch.object(module, "call", draw.choice([native.call, by_tiles])):
        compare(lambda: [linear(x, matrix, activation=activation)], torch.float32)


def try_ranking(draw):
    sentences, beam, vocabulary = draw.randint(1, 4), draw.randint(1, 5), draw.randint(4, 300)
    columns = None
    if draw.random() < 0.5:
        allowed = torch.rand(sentences, vocabulary) < 0.4
        allowed[:, 3] = True
        allowed = AllowedTokens.where(allowed)
        columns = LogitColumns.of(allowed, allowed.together())
    width = vocabulary if columns is None else len(columns.allowed.together())
    logits, so_far = torch.randn(sentences * beam, width), torch.randn(sentences, beam)
    must_end = torch.rand(sentences) < 0.3
    count = draw.randint(1, min(2 * beam, beam * vocabulary))
    banned = [0, 1]
    choices = None
    if draw.random() < 0.5:
        lists = [sorted(draw.sample(range(vocabulary), draw.randint(0, 4))) for _ in range(draw.randint(1, 5))]
        first = torch.tensor([0, *map(len, lists)]).cumsum(0)
        symbols = torch.tensor([symbol for each in lists for symbol in each], dtype=torch.long)
        choices = Choices(torch.randint(-1, len(lists), (sentences * beam,)), first, symbols)
    given = so_far, banned, must_end, 3, count, columns, choices
    found = rank_continuations(logits.clone(), *given)
    with plainly():
        expected = rank_continuations(logits.clone(), *given)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)


def try_attention(draw):
    batch, heads = draw.randint(1, 4), Heads(draw.randint(1, 3), draw.randint(1, 40), draw.randint(1, 40))
    dtype = draw.choice(list(TOLERANCE))
    own, lengths = draw.random() < 0.5, sizes(draw, batch, 40)
    queries, keys = layout(lengths), layout(lengths if own else sizes(draw, batch, 40))
    causal = own and draw.random() < 0.5
    seeds = torch.randint(-(2**60), 2**60, (queries.tokens,))
    dropped = Dropped(draw.choice([0.0, 0.3]), seeds)
    attention = RaggedAttention(queries, keys, heads, Scoring(scale=0.2), causal, None, dropped)
    widths = heads.widths
    projected = torch.randn(queries.tokens, sum(widths) if own else widths[0]).to(dtype)
    memory = None if own else torch.randn(keys.tokens, sum(widths[1:])).to(dtype)
    weight = torch.randn(queries.tokens, widths[2])

    def compute():
        parts = [each.clone().requires_grad_() for each in (projected, memory) if each is not None]
        result = attend_ragged(parts[0], parts[1] if len(parts) > 1 else None, attention)
        return [result, *torch.autograd.grad((result.float() * weight).sum(), parts)]

    compare(compute, dtype)


def try_add_norm(draw):
    rows, columns = draw.randint(1, 12), draw.randint(1, 100)
    x, output = torch.randn(rows, columns), torch.randn(rows, columns) if draw.random() < 0.8 else None
    gain, bias, post = torch.randn(columns), torch.randn(columns), draw.random() < 0.5
    dropped = Dropped(draw.choice([0.0, 0.3]), torch.randint(-(2**60), 2**60, (rows,)))
    # Rows of very few numbers have norms that divide by next to nothing.
    epsilon = 0.1

    def compute():
        parts = [each.clone().requires_grad_() for each in (x, gain, bias, *([] if output is None else [output]))]
        stream, ready = add_norm(
            parts[0], parts[3] if output is not None else None, parts[1], parts[2], epsilon, dropped, post=post
        )
        return [stream, ready, *torch.autograd.grad((stream * x).sum() + (ready * x * 0.5).sum(), parts)]

    compare(compute, torch.float32)


def try_dropout(draw):
    shape = draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 100)
    x, seeds = torch.randn(shape), torch.randint(-(2**60), 2**60, shape[:2])
    compare(lambda: [dropout(x, Dropped(0.4, seeds))], torch.float32)


def try_maps(draw):
    rows, inputs = draw.randint(1, 70), draw.randint(1, 90)
    outputs = [draw.randint(1, 90) for _ in range(draw.randint(1, 3))]
    x, weights = torch.randn(rows, inputs), [torch.randn(n, inputs) / inputs**0.5 for n in outputs]
    biased = draw.random() < 0.5
    biases = [torch.randn(n) if biased else None for n in outputs]

    def compute():
        parts = [each.clone().requires_grad_() for each in (x, *weights, *(b for b in biases if b is not None))]
        count = len(outputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = linear_maps(parts[0], parts[1 : 1 + count], parts[1 + count :] if biased else [None] * count)
        return [result, *torch.autograd.grad(result.float().square().sum() / rows, parts)]

    module = sys.modules["transduce.kernels.linear_maps"]
    with mock.patch.object(module, "_unit", lambda: draw.choice(["vectors", "tiles"])):
        compare(compute, torch.bfloat16)


def try_layers(draw):
    """Layers of a training at once, beside the same kernels called one by one: to the last bit."""
    shares = {name: draw.choice([0.0, 0.3]) for name in ("dropout", "attention_dropout", "activation_dropout")}
    biases = {name: draw.random() < 0.5 for name in ("attention_bias", "feed_forward_bias")}
    config = TransformerConfig(
        encoder_layers=draw.randint(1, 2),
        decoder_layers=draw.randint(1, 2),
        d_model=2 * draw.randint(2, 40),
        d_ff=draw.randint(1, 90),
        heads=draw.randint(1, 3),
        d_k=draw.randint(1, 30),
        d_v=draw.randint(1, 40),
        vocab_size=draw.randint(5, 90),
        norm=draw.choice(["pre", "post"]),
        feed_forward=draw.choice(["mlp", "gated"]),
        activation=draw.choice(["relu", "gelu", "gelu_tanh", "silu"]),
        **shares,
        **biases,
    )
    model, lengths = build(config), [torch.tensor(each) for each in [sizes(draw, draw.randint(1, 5), 40)] * 2]
    lengths[1] = lengths[1].flip(0)
    ids = [torch.randint(0, config.vocab_size, (len(each), int(each.max()))) for each in lengths]
    seeds = torch.randint(-(2**60), 2**60, (len(lengths[0]),))
    read = [Tokens(each, number, seeds) for each, number in zip(ids, lengths, strict=True)]

    def compute():
        with torch.autocast("cpu", torch.bfloat16):
            sums = model(*read, ids[1])
        return [sums.objective, *torch.autograd.grad(sums.objective, [*model.parameters()])]

    unit = draw.choice(["vectors", "tiles"])
    with mock.patch.object(sys.modules["transduce.kernels.linear_maps"], "_unit", lambda: unit):
        at_once = compute()
        with mock.patch.object(stacks, "_at_once", lambda *_: None):
            assert all(one.equal(other) for one, other in zip(at_once, compute(), strict=True))


def try_recurrences(draw):
    attention = draw.choice(["none", "bahdanau", "conditional", "gnmt"])
    config = RecurrentConfig(
        encoder_layers=draw.randint(1, 2),
        decoder_layers=2 if attention == "gnmt" else draw.randint(1, 2),
        embedding_size=draw.randint(1, 40),
        hidden_size=draw.randint(1, 40),
        attention=attention,
        **({} if attention == "none" else {"attention_size": draw.randint(1, 40)}),
        vocab_size=draw.randint(5, 90),
        dropout=draw.choice([0.0, 0.3]),
    )
    model, batch = build(config).train(), draw.randint(1, 20)
    seeds = torch.randint(-(2**60), 2**60, (batch,))
    read = []
    for _ in range(2):
        lengths = torch.tensor(sizes(draw, batch, 20))
        read.append(Tokens(torch.randint(0, config.vocab_size, (batch, int(lengths.max()))), lengths, seeds))

    def compute(*, rounded=False):
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            sums = model(*read, read[1].ids)
        return [sums.objective, *torch.autograd.grad(sums.objective, [*model.parameters()], allow_unused=True)]

    compare(lambda: [each for each in compute() if each is not None], torch.float32)
    with mock.patch.object(sys.modules["transduce.kernels.linear_maps"], "_unit", lambda: "vectors"):
        assert all(each.isfinite().all() for each in compute(rounded=True) if each is not None)


def try_loss(draw):
    tokens, width, vocabulary = draw.randint(1, 30), draw.randint(1, 40), draw.randint(2, 150)
    hidden, weight = torch.randn(tokens, width), torch.randn(vocabulary, width) / width**0.5
    labels = torch.randint(0, vocabulary, (tokens,))
    weights = draw.choice([None, torch.randint(-1, 3, (tokens,)).float()])

    def compute():
        parts = [each.clone().requires_grad_() for each in (hidden, weight)]
        objective, nll = projected_cross_entropy(*parts, labels, 0.1, weights)
        return [objective, nll, *torch.autograd.grad(objective, parts)]

    compare(compute, torch.float32)


@torch.inference_mode()
def try_decoding(draw):
    """A walk on which sentences come and go and rows change places, across the growth of every buffer."""
    heads, width = draw.randint(1, 3), 2 * draw.randint(2, 20)
    config = TransformerConfig(
        **{"encoder_layers": draw.randint(1, 2), "decoder_layers": draw.randint(1, 2), "d_model": width},
        **{"d_ff": draw.randint(1, 90), "heads": heads, "d_k": draw.randint(1, 30), "d_v": draw.randint(1, 40)},
        **{"vocab_size": draw.randint(5, 90), "norm": draw.choice(["pre", "post"])},
        positions=draw.choice(["sinusoidal", "none"]),
        **draw.choice([{}, {"decoder_self_attention": "average", "average_gate": draw.random() < 0.5}]),
    )
    plain = build(config).eval().requires_grad_(False)
    packed = NativeTransformer(plain, draw.choice(FORMATS))
    beam, batch = draw.randint(1, 4), draw.randint(1, 4)

    def begin():
        lengths = sizes(draw, batch, draw.choice([5, 40, 600]) if draw.random() < 0.05 else 20)
        ids = torch.randint(0, config.vocab_size, (batch, max(lengths)))
        return packed.start(packed.encode(Tokens(ids, torch.tensor(lengths))), beam)

    state, sentences = begin(), batch
    for _ in range(draw.choice([1, 3, 20, 40])):
        # Some places of the beam are empty: no row goes on from them.
        filled = torch.rand(sentences, beam) < draw.choice([0.3, 1])
        filled[:, 0] = True
        tokens = torch.randint(0, config.vocab_size, (sentences * beam,)).where(filled.flatten(), READS_NOTHING)
        one = packed.step(state, tokens, attention=LAST_CROSS if draw.random() < 0.3 else NO_ATTENTION)
        assert one.logits.isfinite().all()
        parents = torch.multinomial(filled.float(), beam, replacement=True)
        rows = beam * torch.arange(sentences).unsqueeze(1) + parents
        state = one.state.reorder(rows.flatten())
        if sentences > 1 and draw.random() < 0.2:
            gone = torch.arange(sentences) == draw.randrange(sentences)
            state, sentences = state.release(gone), sentences - 1
        if draw.random() < 0.1:
            state, sentences = state.admit(begin()), sentences + batch


TRIES = (
    *(try_linear, try_ranking, try_attention, try_add_norm, try_dropout, try_maps, try_loss, try_decoding),
    *(try_linear, try_ranking, try_attention, try_layers, try_recurrences),
)


def run(number, seed):
    """So many shapes, the kernels one after the other; what fails says which shape it was."""
    for index in range(number):
        one = TRIES[index % len(TRIES)]
        torch.manual_seed(seed * 1_000_003 + index)
        try:
            one(random.Random(f"{seed} {index}"))
        except Exception as error:
            raise AssertionError(f"{one.__name__}, shape {index} of seed {seed}") from error


if __name__ == "__main__":
    torch.set_num_threads(2)
    run(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{int(sys.argv[1]):,} shapes\n")
