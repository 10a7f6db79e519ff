"""The packed Transformer computes what the plain one does, however its rows come, change places and go."""

import copy
import weakref
from functools import cache
from itertools import product

import pytest
import torch

from tests.sparing import one_each
from transduce.config import TransformerConfig
from transduce.kernels import READS_NOTHING
from transduce.models import (
    LAST_CROSS,
    NO_ATTENTION,
    AttentionRequest,
    Ensemble,
    NativeTransformer,
    Tokens,
    Transformer,
    build,
    can_run_natively,
    make_ready,
    native_state,
)
from transduce.models import native as native_module
from transduce.models.quantize import quantize

SIZES = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 44, "d_ff": 76, "heads": 4, "vocab_size": 67}
VARIANTS = {
    "post": {},
    "pre": {"norm": "pre"},
    "widths": {"norm": "pre", "d_k": 7, "d_v": 21, "attention_bias": True},
    "wide heads": {"d_v": 83, "d_k": 67},
    "no positions": {"positions": "none"},
    "learned": {"positions": "learned", "max_positions": 61, "compatibility": "dot_product"},
    "two vocabularies": {"source_vocab_size": 71, "tied_projection": False, "sinusoid_layout": "concatenated"},
    "gelu": {"activation": "gelu", "feed_forward_bias": False},
    "gated": {"activation": "silu", "feed_forward": "gated", "norm": "pre"},
    "T5": {"activation": "gelu_tanh", "feed_forward": "gated", "feed_forward_bias": False, "tied_projection": False},
    "Marian": {"activation": "silu", "output_bias": True, "attention_bias": True, "source_vocab_size": 71},
    "mBART": {"activation": "gelu", "embedding_norm": True, "norm": "pre", "positions": "learned", "output_bias": True},
    "unscaled, no final norm": {"norm": "pre", "final_norm": False, "scale_embedding": False},
    "post, final norm": {"final_norm": True, "output_bias": True, "scale_embedding": False},
    "norm without positions": {"embedding_norm": True, "positions": "none"},
    "average": {"decoder_self_attention": "average"},
    "average, no gate": {
        "decoder_self_attention": "average",
        "average_gate": False,
        "feed_forward": "gated",
        "activation": "silu",
        "feed_forward_bias": False,
        "norm": "pre",
    },
    "average, no network": {"decoder_self_attention": "average", "average_feed_forward": False, "norm": "pre"},
    "the mean alone": {"decoder_self_attention": "average", "average_feed_forward": False, "average_gate": False},
}
NOT_NATIVE = [
    {"positions": "relative"},
    {"compatibility": "additive"},
    {"attention_window": 4},
    {"position_combination": "concatenate"},
    {"positions_at_every_layer": True},
    {"feed_forward": "parameter_attention"},
    {"feed_forward": "mixture_of_experts", "experts": 3},
    {"residual": False},
]
SOURCE = Tokens(torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [11, 12, 3, 0, 0]]), torch.tensor([5, 2, 3]))
BEAM = 2
# Rounding a number to bfloat16 moves it by 2^-9 of itself at most, to int8 by 2^-8 of its row's largest.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15, "int8": 0.4}
OF_WEIGHTS = {"float32": 1e-4, "bfloat16": 0.04, "int8": 0.12}  # of attention, which add up to 1
# What is wrong in one place moves the mean more than rounding does.
MEAN = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.06}
NARROW = [format_ for format_ in TOLERANCE if format_ != "float32"]


@pytest.fixture(autouse=True)
def _built(way):
    if way == "plain":
        pytest.skip("there is nothing but the plain model")


def make(variant):
    torch.manual_seed(3)
    model = build(TransformerConfig(**{**SIZES, **variant})).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))  # gains and biases that leave a trace
    return model


def walk(model, steps=37):
    """The logits and attention of a walk on which sentences come and go and rows change places."""
    draw = torch.Generator().manual_seed(5)
    state = model.start(model.encode(SOURCE), BEAM)
    sentences = 3
    for number in range(steps):
        tokens = torch.randint(0, SIZES["vocab_size"], (sentences * BEAM,), generator=draw)
        step = model.step(state, tokens, attention=NO_ATTENTION if number % 2 else LAST_CROSS)
        yield step.logits.float().clone(), next((each.float() for each in step.attention.values()), None)
        own = BEAM * torch.arange(sentences).unsqueeze(1)
        state = step.state.reorder((own + torch.randint(0, BEAM, (sentences, BEAM), generator=draw)).flatten())
        if number == 15:
            state, sentences = state.release(torch.tensor([False, True, False])), 2
        if number == 18:
            newer = model.start(model.encode(SOURCE), BEAM)
            for token in (1, 9):
                newer = model.step(newer, torch.full((3 * BEAM,), token)).state
            state, sentences = state.admit(newer), 5


@cache
def walk_of_the_plain_one(variant):
    """The same for every format and set of kernels."""
    return [*walk(make(VARIANTS[variant]))]


@torch.inference_mode()
@pytest.mark.parametrize(
    ("variant", "format_"), [*((variant, "float32") for variant in VARIANTS), *one_each(VARIANTS, NARROW)]
)
def test_every_step_is_the_plain_one(variant, format_, monkeypatch):
    monkeypatch.setattr(native_state, "_EXTRA", 0)  # buffers that soon are too small
    packed, expectations = NativeTransformer(make(VARIANTS[variant]), format_), walk_of_the_plain_one(variant)
    apart = []
    for (logits, attention), (expected, weights) in zip(walk(packed), expectations, strict=True):
        torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE[format_])
        apart.append(float((logits - expected).abs().mean()))
        if weights is not None:
            torch.testing.assert_close(attention, weights, rtol=0, atol=OF_WEIGHTS[format_])
    assert sum(apart) / len(apart) < MEAN[format_], sum(apart) / len(apart)


def read_all(model, memory, sentences):
    """The logits of rows that read the same symbols, one for each sentence."""
    state = model.start(memory, 1)
    for symbol in (1, 5, 9):
        step = model.step(state, torch.full((sentences,), symbol))
        yield step.logits.clone()
        state = step.state


@torch.inference_mode()
@pytest.mark.parametrize(("variant", "format_"), [*product(["post", "average"], TOLERANCE)])
def test_a_row_is_bit_for_bit_the_same_alone(variant, format_):
    packed = NativeTransformer(make(VARIANTS[variant]), format_)
    together = packed.encode(SOURCE)
    expected = [*read_all(packed, together, 3)]
    for row, length in enumerate(SOURCE.lengths.tolist()):
        alone = packed.encode(Tokens(SOURCE.ids[row : row + 1, :length], SOURCE.lengths[row : row + 1]))
        assert alone.hidden.equal(together.hidden[together.layout.offsets[row] : together.layout.offsets[row + 1]])
        for logits, of_all in zip(read_all(packed, alone, 1), expected, strict=True):
            assert logits.equal(of_all[row : row + 1])


@torch.inference_mode()
def test_a_source_without_symbols_is_the_same_alone():
    packed = NativeTransformer(make({}), "float32")
    found = []
    for ids in ([[7, 8]], [[5, 6], [7, 8]], [[9, 9], [7, 8]]):
        source = Tokens(torch.tensor(ids), torch.tensor([*[2] * (len(ids) - 1), 0]))
        found.append([step[-1] for step in read_all(packed, packed.encode(source), len(ids))])
    alone, *together = found
    for steps in together:
        assert all(each.equal(expected) for each, expected in zip(steps, alone, strict=True))


def read_with_gaps(model, beam, fill):
    """Logits and attention of a walk on which some places of the beams are empty, and which rows are not.

    What is empty reads ``fill`` in place of a symbol, and no row goes on from it.
    """
    draw = torch.Generator().manual_seed(9)
    state = model.start(model.encode(SOURCE), beam)
    open_ = torch.zeros(3, beam, dtype=torch.bool)
    open_[:, 0] = True
    for _ in range(20):
        tokens = torch.randint(0, SIZES["vocab_size"], (3 * beam,), generator=draw)
        tokens = torch.where(open_.flatten(), tokens, fill)
        step = model.step(state, tokens, attention=LAST_CROSS)
        (weights,) = step.attention.values()
        yield step.logits.float().clone(), weights.float(), open_.flatten()
        choices = open_.float() + 1e-9  # a sentence may have none
        parents = torch.multinomial(choices, beam, replacement=True, generator=draw)
        state = step.state.reorder((beam * torch.arange(3).unsqueeze(1) + parents).flatten())
        open_ = (torch.rand(3, beam, generator=draw) < 0.6) & open_.any(dim=1, keepdim=True)
        open_[0, -1] = True


@torch.inference_mode()
@pytest.mark.parametrize(
    ("variant", "beam", "format_"),
    [*(("post", 4, format_) for format_ in TOLERANCE), ("post", 9, "int8"), ("average", 4, "int8")],
)
def test_empty_places_of_a_beam_are_left_out(variant, beam, format_):
    """All else is the same, bit for bit, whatever stands in them; the plain model takes them, too."""
    plain = make(VARIANTS[variant])
    packed = NativeTransformer(copy.deepcopy(plain), format_)
    ways = [(packed, READS_NOTHING), (packed, 5), (plain, READS_NOTHING)]
    found = [read_with_gaps(model, beam, fill) for model, fill in ways]
    for (logits, weights, open_), (filled, its_weights, _), (expected, _, _) in zip(*found, strict=True):
        assert logits[open_].equal(filled[open_])
        assert weights[open_].equal(its_weights[open_])
        assert not logits[~open_].any()
        assert not weights[~open_].any()
        torch.testing.assert_close(logits[open_], expected[open_], rtol=0, atol=TOLERANCE[format_])


@torch.inference_mode()
@pytest.mark.parametrize("format_", TOLERANCE)
def test_known_targets_and_ensembles(format_):
    plain = make({})
    packed = make_ready(copy.deepcopy(plain), format_)
    target = Tokens(torch.tensor([[1, 5, 9], [1, 6, 0], [1, 0, 0]]), torch.tensor([3, 2, 1]))
    for one, other in ((packed, plain), (Ensemble([packed, packed]), Ensemble([plain, plain]))):
        found, expected = (each.project(each.decode(each.encode(SOURCE), target).hidden) for each in (one, other))
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=TOLERANCE[format_])


@torch.inference_mode()
@pytest.mark.parametrize(("variant", "format_"), [*one_each(VARIANTS, TOLERANCE, 1)])
def test_what_is_left_to_the_plain_model_is_made_of_the_same_matrices(variant, format_):
    # That of one which was never packed, to the last bit; int8 has matrices in the place of weights.
    packed, plain = NativeTransformer(make(VARIANTS[variant]), format_), quantize(make(VARIANTS[variant]), format_)
    for name, weight in plain.state_dict().items():
        if format_ != "int8" or name != "projection.weight":  # which it no longer has in full
            assert packed._plain.state_dict()[name].equal(weight), name
    target = Tokens(torch.tensor([[1, 5, 9], [1, 6, 0], [1, 0, 0]]), torch.tensor([3, 2, 1]))
    weights = AttentionRequest(encoder="all", decoder="all", cross="all")
    one, other = (
        each.decode(each.encode(SOURCE, attention=weights), target, attention=weights) for each in (packed, plain)
    )
    for kind in ("encoder", "decoder", "cross"):
        found, expected = getattr(one.attention, kind), getattr(other.attention, kind)
        torch.testing.assert_close(found, expected, rtol=0, atol=OF_WEIGHTS[format_])
    assert packed.project(other.hidden).equal(plain.project(other.hidden))
    labels = torch.tensor([[5, 9, 2], [6, 2, 0], [2, 0, 0]])
    found, expected = (each.forward(SOURCE, target, labels).nll for each in (packed, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=6 * MEAN[format_])  # of six symbols


def test_a_model_and_its_matrices_never_exist_at_once_in_whole():
    model = make({})
    gone = [weakref.ref(parameter) for layer in model.layers() for parameter in layer.parameters()]
    packed = NativeTransformer(model, "int8")
    assert not [each for each in gone if each() is not None and each().dim() > 1]
    assert "_plain" not in vars(packed)


@pytest.mark.parametrize("variant", NOT_NATIVE)
def test_what_the_kernels_do_not_compute_is_left_to_the_plain_model(variant):
    assert not can_run_natively(make(variant))
    ready = make_ready(make(variant), "int8")
    assert isinstance(ready, Transformer)
    with torch.inference_mode():
        expected = [logits for logits, _ in walk(make(variant), 5)]
        found = [logits for logits, _ in walk(ready, 5)]
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE["int8"])
    assert not found[0].equal(expected[0])


@torch.inference_mode()
def test_nothing_of_it_changes_while_it_is_used(monkeypatch):
    # Threads share it: whatever one put in its place, another would find where it had put its own.
    monkeypatch.setattr(native_module, "_POSITIONS", 16)
    packed = NativeTransformer(make({}), "float32")
    before, stacks = dict(vars(packed)), [vars(each).copy() for each in (packed._encoder, packed._decoder)]
    long = Tokens(torch.full((1, 600), 5), torch.tensor([600]))
    state = packed.start(packed.encode(long), 1)
    for _ in range(40):
        state = packed.step(state, torch.tensor([5])).state
    after = vars(packed)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    for stack, was in zip((packed._encoder, packed._decoder), stacks, strict=True):
        assert all(vars(stack)[name] is was[name] for name in was)
        assert vars(stack).keys() == was.keys()


@torch.inference_mode()
def test_a_table_of_positions_that_grows_is_the_states_own(monkeypatch):
    # Two sentences far beyond the first table, of which one comes in late: every step as one by one.
    monkeypatch.setattr(native_module, "_POSITIONS", 16)
    packed = NativeTransformer(make({}), "float32")
    plain = make({})
    short = Tokens(SOURCE.ids[1:2, :2], SOURCE.lengths[1:2])
    state, expected = packed.start(packed.encode(short), 1), plain.start(plain.encode(short), 1)
    for number in range(60):
        symbols = torch.full((2 if number > 18 else 1,), 5 + number % 7)
        one, other = packed.step(state, symbols), plain.step(expected, symbols)
        state, expected = one.state, other.state
        torch.testing.assert_close(one.logits, other.logits, rtol=0, atol=1e-4)
        if number == 18:
            state = state.admit(packed.start(packed.encode(short), 1))
            expected = expected.admit(plain.start(plain.encode(short), 1))


@torch.inference_mode()
@pytest.mark.parametrize("length", [255, 256, 513, 1100])
def test_long_sources_are_read_as_the_plain_model_reads_them(length):
    # From 256 symbols on, blocks of queries are shared out among threads.
    plain = make({"norm": "pre", "d_k": 7, "d_v": 21})
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(0, SIZES["vocab_size"], (2, length), generator=draw)
    source = Tokens(ids, torch.tensor([length, 5]))
    packed = NativeTransformer(copy.deepcopy(plain), "float32")
    threads = torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(packed.encode(source).hidden)
    finally:
        torch.set_num_threads(threads)
    assert found[0].equal(found[1])
    torch.testing.assert_close(found[0], plain.encode(source).hidden, rtol=0, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("symbol", [-2, SIZES["vocab_size"]])
def test_symbols_that_there_are_none_of_are_refused(symbol):
    packed = NativeTransformer(make({}), "int8")
    for each in (symbol, READS_NOTHING):  # no source has a gap
        with pytest.raises(IndexError, match="encode"):
            packed.encode(Tokens(torch.tensor([[5, each, 3]]), torch.tensor([3])))
    state = packed.start(packed.encode(SOURCE), 1)
    with pytest.raises(IndexError, match="step"):
        packed.step(state, torch.tensor([5, symbol, 3]))


@torch.inference_mode()
@pytest.mark.parametrize(
    "other", [{"heads": 2}, {"decoder_layers": 2}, VARIANTS["average"]], ids=["heads", "layers", "average"]
)
def test_a_state_of_another_model_is_refused(other):
    packed, strange = (NativeTransformer(make(variant), "float32") for variant in ({}, other))
    state = strange.start(strange.encode(SOURCE), 1)
    with pytest.raises(ValueError, match="not of this decoder"):
        packed.step(state, torch.tensor([5, 6, 7]))
