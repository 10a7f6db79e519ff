"""The packed Transformer computes what the plain one does, however its rows come, change places and go."""

import copy

import pytest
import torch

from transduce.config import ModelConfig
from transduce.models import Ensemble, PackedTransformer, Tokens, Transformer, build, can_pack, make_ready

SIZES = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 44, "d_ff": 76, "heads": 4, "vocab_size": 67}
VARIANTS = {
    "post": {},
    "pre": {"norm": "pre"},
    "widths": {"norm": "pre", "d_k": 7, "d_v": 21, "attention_bias": True},
    "wide heads": {"d_v": 83, "d_k": 67},
    "no positions": {"positions": "none"},
    "learned": {"positions": "learned", "max_positions": 61, "compatibility": "dot_product"},
    "two vocabularies": {"source_vocab_size": 71, "tied_projection": False, "sinusoid_layout": "concatenated"},
}
NOT_PACKED = [
    {"positions": "relative"},
    {"compatibility": "additive"},
    {"neighbourhood": 4},
    {"position_combination": "concatenate"},
    {"positions_at_every_layer": True},
    {"feed_forward": "parameter_attention"},
    {"residual": False},
]
SOURCE = Tokens(torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [11, 12, 3, 0, 0]]), torch.tensor([5, 2, 3]))
PREFIX = Tokens(torch.tensor([[1, 9, 8], [1, 0, 0], [1, 4, 0]]), torch.tensor([3, 1, 2]))
BEAM = 2
# Rounding a number to bfloat16 moves it by 2^-9 of itself at most, to int8 by 2^-8 of its row's largest.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15, "int8": 0.4}


@pytest.fixture(autouse=True)
def _built(way):
    if way == "plain":
        pytest.skip("there is nothing but the plain model")


def make(variant):
    torch.manual_seed(3)
    model = build(ModelConfig(**SIZES, **variant)).eval().requires_grad_(False)
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
        step = model.step(state, tokens, want_attention=number % 2 == 0)
        yield step.logits.float().clone(), None if step.attention is None else step.attention.float()
        own = BEAM * torch.arange(sentences).unsqueeze(1)
        state = step.state.reorder((own + torch.randint(0, BEAM, (sentences, BEAM), generator=draw)).flatten())
        if number == 15:
            state, sentences = state.release(torch.tensor([False, True, False])), 2
        if number == 18:
            state, sentences = state.admit(model.start(model.encode(SOURCE), BEAM, PREFIX)), 5


@torch.inference_mode()
@pytest.mark.parametrize("format_", TOLERANCE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_step_is_the_plain_one(variant, format_):
    plain = make(VARIANTS[variant])
    packed = PackedTransformer(copy.deepcopy(plain), format_)
    for (logits, attention), (expected, weights) in zip(walk(packed), walk(plain), strict=True):
        torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE[format_])
        if weights is not None:
            torch.testing.assert_close(attention, weights, rtol=0, atol=TOLERANCE[format_])


@torch.inference_mode()
@pytest.mark.parametrize("format_", TOLERANCE)
def test_a_row_is_bit_for_bit_the_same_alone(format_):
    packed = PackedTransformer(make({}), format_)
    together = packed.encode(SOURCE)
    state = packed.start(together, 1)
    logits = packed.step(state, torch.tensor([1, 1, 1])).logits
    for row, length in enumerate(SOURCE.lengths.tolist()):
        alone = packed.encode(Tokens(SOURCE.ids[row : row + 1, :length], SOURCE.lengths[row : row + 1]))
        assert alone.hidden.equal(together.hidden[together.packing.offsets[row] : together.packing.offsets[row + 1]])
        assert packed.step(packed.start(alone, 1), torch.tensor([1])).logits.equal(logits[row : row + 1])


@torch.inference_mode()
@pytest.mark.parametrize("format_", TOLERANCE)
def test_known_targets_and_ensembles(format_):
    plain = make({})
    packed = make_ready(copy.deepcopy(plain), format_)
    target = Tokens(torch.tensor([[1, 5, 9], [1, 6, 0], [1, 0, 0]]), torch.tensor([3, 2, 1]))
    for one, other in ((packed, plain), (Ensemble([packed, packed]), Ensemble([plain, plain]))):
        found, expected = (each.project(each.decode(each.encode(SOURCE), target).hidden) for each in (one, other))
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=TOLERANCE[format_])


@pytest.mark.parametrize("variant", NOT_PACKED)
def test_what_the_kernels_do_not_compute_is_left_to_the_plain_model(variant):
    assert not can_pack(make(variant))
    ready = make_ready(make(variant), "int8")
    assert isinstance(ready, Transformer)
    with torch.inference_mode():
        expected = [logits for logits, _ in walk(make(variant), 5)]
        found = [logits for logits, _ in walk(ready, 5)]
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE["int8"])
    assert not found[0].equal(expected[0])
