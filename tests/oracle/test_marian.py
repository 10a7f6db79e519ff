"""Forward, gradients and search against MarianMTModel of ``transformers`` with the same weights.

Marian's models are the paper's, up to the order of the sinusoids and a bias in the attention's projections. They begin
their outputs with the padding symbol, which is no padding there: so do ours here.
"""

import math
from itertools import takewhile

import pytest
import torch

from tests.tiny_search import search_all
from transduce.config import TransformerConfig
from transduce.models import Tokens, Transformer
from transduce.search import LengthPenalty, SearchSettings

VOCABULARY, SOURCE_VOCABULARY = 53, 59
END, UNKNOWN, PAD = 0, 1, VOCABULARY - 1
LONGEST, LIMIT = 11, 13

# Our modules' names inside a layer, and theirs.
NAMES = {
    "self_attention.": "self_attn.",
    "self_attention_residual.norm.": "self_attn_layer_norm.",
    "cross_attention.": "encoder_attn.",
    "cross_attention_residual.norm.": "encoder_attn_layer_norm.",
    "feed_forward.inner.": "fc1.",
    "feed_forward.outer.": "fc2.",
    "feed_forward_residual.norm.": "final_layer_norm.",
    "query.": "q_proj.",
    "key.": "k_proj.",
    "value.": "v_proj.",
    "output.": "out_proj.",
}
SHARED = {"embedding.weight": "model.shared.weight"}
SEPARATE = {
    "embedding.weight": "model.decoder.embed_tokens.weight",
    "source_embedding.weight": "model.encoder.embed_tokens.weight",
}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="the oracle is missing: pip install 'transduce[interop]'")


def transformer(source_vocabulary=None, **changes):
    torch.manual_seed(7)
    config = TransformerConfig(
        encoder_layers=2,
        decoder_layers=3,
        d_model=20,
        d_ff=28,
        heads=4,
        dropout=0,
        label_smoothing=0,
        vocab_size=VOCABULARY,
        source_vocab_size=source_vocabulary,
        sinusoid_layout="concatenated",
        norm_epsilon=1e-5,
        attention_bias=True,
        **changes,
    )
    model = Transformer(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:  # so that no scale is one and no shift is zero
            torch.nn.init.normal_(parameter, mean=float("weight" in name), std=0.3)
    return model


def their_name(name):
    """What they call our parameter: ``encoder.1.feed_forward.inner.bias`` is ``model.encoder.layers.1.fc1.bias``."""
    stack, layer, rest = name.split(".", 2)
    for ours, theirs in NAMES.items():
        rest = rest.replace(ours, theirs)
    return f"model.{stack}.layers.{layer}.{rest}"


def twins(ours, theirs):
    """Our parameters' names, and theirs: every one of both."""
    embeddings = SHARED if theirs.config.share_encoder_decoder_embeddings else SEPARATE
    names = {
        name: embeddings.get(name) or their_name(name) for name, _ in ours.named_parameters() if name != "output_bias"
    }
    assert sorted(names.values()) == sorted(name for name, p in theirs.named_parameters() if p.requires_grad)
    return names


def marian(transformers, ours):
    """Their model with our weights, in our number format."""
    mine = ours.config
    config = transformers.MarianConfig(
        encoder_layers=mine.encoder_layers,
        decoder_layers=mine.decoder_layers,
        d_model=mine.d_model,
        encoder_ffn_dim=mine.d_ff,
        decoder_ffn_dim=mine.d_ff,
        encoder_attention_heads=mine.heads,
        decoder_attention_heads=mine.heads,
        dropout=0.0,
        activation_function={"silu": "swish"}.get(mine.activation, mine.activation),
        scale_embedding=True,
        vocab_size=mine.source_vocab_size or mine.vocab_size,
        decoder_vocab_size=mine.vocab_size,
        share_encoder_decoder_embeddings=mine.source_vocab_size is None,
        max_position_embeddings=37,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    theirs = transformers.MarianMTModel(config).eval().to(ours.embedding.weight.dtype)
    for name, twin in twins(ours, theirs).items():
        # Set, not copied into: before version 5 the decoder's matrix is made in the size of the source's vocabulary.
        theirs.get_parameter(twin).data = ours.get_parameter(name).detach().clone()
    assert not theirs.final_logits_bias.any()
    if ours.output_bias is not None:
        theirs.final_logits_bias.copy_(ours.output_bias.detach())
    for stack in (theirs.model.encoder, theirs.model.decoder):
        # Else the symbol that every output begins with would learn nothing from being read.
        stack.embed_tokens.padding_idx = None
    return theirs


def sources(count, seed, vocabulary=VOCABULARY):
    """Sources of 2 to 11 symbols, their end symbol counted; behind it stands anything."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, LONGEST + 1, (count,), generator=random)
    ids = torch.randint(2, vocabulary - 1, (count, LONGEST), generator=random)
    ids[torch.arange(count), lengths - 1] = END
    return Tokens(ids, lengths)


def pairs(count, seed, vocabulary=VOCABULARY):
    """Sources, targets of other lengths that begin with PAD, and their labels."""
    target = sources(count, seed + 1)
    begun = torch.cat([torch.full((count, 1), PAD), target.ids[:, :-1]], dim=1)
    return sources(count, seed, vocabulary), Tokens(begun, target.lengths), target.ids


def real(tokens):
    return torch.arange(tokens.ids.shape[1]) < tokens.lengths.unsqueeze(1)


# Published models (opus-mt) have swish and a bias of the logits.
OPUS = {"activation": "silu", "output_bias": True}


@pytest.fixture(
    params=[(None, {}), (SOURCE_VOCABULARY, {}), (None, OPUS), (SOURCE_VOCABULARY, {"activation": "gelu"})],
    ids=["one-vocabulary", "two-vocabularies", "opus", "gelu"],
)
def ours(request):
    source_vocabulary, changes = request.param
    return transformer(source_vocabulary, **changes)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_hidden_states_and_logits_agree(transformers, ours, dtype, tolerance):
    theirs = marian(transformers, ours.to(dtype))
    source, target, _ = pairs(17, 3, ours.config.source_vocab_size or VOCABULARY)
    memory = ours.encode(source)
    hidden = ours.decode(memory, target).hidden
    expected = theirs(
        input_ids=source.ids,
        attention_mask=real(source).long(),
        decoder_input_ids=target.ids,
        output_hidden_states=True,
    )
    for found, other, mask in (
        (memory.hidden, expected.encoder_last_hidden_state, real(source)),
        (hidden, expected.decoder_hidden_states[-1], real(target)),
        (ours.project(hidden), expected.logits, real(target)),
    ):
        assert found.dtype == dtype
        torch.testing.assert_close(found, other[mask], rtol=tolerance, atol=tolerance)


def test_loss_and_every_gradient_agree(transformers, ours):
    theirs = marian(transformers, ours)
    source, target, labels = pairs(17, 3, ours.config.source_vocab_size or VOCABULARY)
    sums = ours(source, target, labels)
    # They shift the labels themselves, leave those of -100 out, and give the mean.
    loss = theirs(
        input_ids=source.ids,
        attention_mask=real(source).long(),
        labels=labels.masked_fill(~real(target), -100),
    ).loss * int(target.lengths.sum())
    torch.testing.assert_close(sums.objective, loss, rtol=1e-6, atol=0)
    sums.objective.backward()
    loss.backward()
    for name, twin in twins(ours, theirs).items():
        found, expected = ours.get_parameter(name).grad, theirs.get_parameter(twin).grad
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5, msg=lambda text, n=name: f"{n}: {text}")


@pytest.fixture(scope="module")
def trained(transformers):
    """Both models after a short training in copying: random ones write one thing without end."""
    ours = transformer()
    optimizer = torch.optim.Adam(ours.parameters(), lr=3e-3)
    for seed in range(80):
        source = sources(32, 1000 + seed)
        target = torch.cat([torch.full((32, 1), PAD), source.ids[:, :-1]], dim=1)
        loss = ours(source, Tokens(target, source.lengths), source.ids).objective / source.lengths.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # Their logits in float64 agree so closely that no near tie is decided by rounding; both search in float32.
    return ours.double(), marian(transformers, ours)


SOURCES = sources(240, 5)


def our_search(model, beam, n_best):
    settings = SearchSettings(PAD, END, (PAD, UNKNOWN), beam, n_best, penalty=LengthPenalty("none"))
    found = search_all(model, SOURCES, torch.full_like(SOURCES.lengths, LIMIT), settings)
    return [[(hypothesis.ids, hypothesis.log_probability) for hypothesis in best] for best in found]


def must_end(written, scores):
    """Their own forced end (``forced_eos_token_id``) counts as certain; ours counts with its probability."""
    others = torch.arange(scores.shape[-1]) != END
    return scores.masked_fill(others, -math.inf) if written.shape[1] == LIMIT else scores


def their_search(model, beam, n_best, **settings):
    """Without a length penalty, and going on while an open output can still win, they search as we do."""
    exact = {"num_beams": beam, "num_return_sequences": n_best, "length_penalty": 0.0, "early_stopping": "never"}
    found = model.generate(
        input_ids=SOURCES.ids,
        attention_mask=real(SOURCES).long(),
        max_new_tokens=LIMIT,
        suppress_tokens=[PAD, UNKNOWN],
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **(exact if beam > 1 else {}),
        **settings,
    )
    written = [tuple(takewhile(lambda symbol: symbol != END, row)) for row in found.sequences[:, 1:].tolist()]
    totals = found.sequences_scores.tolist() if beam > 1 else greedy_totals(found)
    outputs = list(zip(written, totals, strict=True))
    return [outputs[first : first + n_best] for first in range(0, len(outputs), n_best)]


def greedy_totals(found):
    """The log-probabilities of greedy outputs, end symbols counted: they give none."""
    log_probability = torch.log_softmax(torch.stack(found.logits, dim=1), dim=-1)
    symbols = found.sequences[:, 1:]
    chosen = log_probability.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
    ended = (symbols == END).cumsum(dim=1) - (symbols == END).int()
    return chosen.masked_fill(ended > 0, 0).sum(dim=1).tolist()


def assert_same(found, expected):
    assert [[ids for ids, _ in best] for best in found] == [[ids for ids, _ in best] for best in expected]
    for best, others in zip(found, expected, strict=True):
        assert [total for _, total in best] == pytest.approx([total for _, total in others], rel=1e-5)


@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), pytest.param(4, 1, marks=pytest.mark.slow), (4, 4), (5, 3)])
def test_search_finds_the_same_outputs(transformers, trained, beam, n_best):
    ours, theirs = trained
    forced = transformers.LogitsProcessorList([must_end])
    assert_same(our_search(ours, beam, n_best), their_search(theirs, beam, n_best, logits_processor=forced))


def test_search_agrees_with_their_own_forced_end_where_none_was_forced(trained):
    ours, theirs = trained
    expected = their_search(theirs, 4, 4, forced_eos_token_id=END)
    # A forced end counts for more with them than with us: where none is on their list, none is on ours.
    free = [row for row, best in enumerate(expected) if max(len(ids) for ids, _ in best) < LIMIT - 1]
    assert len(free) > 100
    found = our_search(ours, 4, 4)
    assert_same([found[row] for row in free], [expected[row] for row in free])


def test_the_outputs_compared_are_of_many_lengths_and_a_beam_matters(trained):
    ours, _ = trained
    greedy, wide = ([best[0] for best in our_search(ours, beam, 1)] for beam in (1, 4))
    assert sum(one[0] != other[0] for one, other in zip(greedy, wide, strict=True)) > 50
    assert all(len({len(ids) for ids, _ in outputs}) > 5 for outputs in (greedy, wide))
    assert len({ids for ids, _ in wide}) > 100
    assert any(len(ids) == LIMIT - 1 for ids, _ in wide)  # which had to end
