"""Decoding step by step with a state gives what decoding the whole target gives."""

from typing import Literal, get_args, get_origin

import pytest
import torch

from tests.model_variants import VARIANTS
from tests.sparing import every, one_each
from transduce.config import TransformerConfig, preset
from transduce.layers import KeyValues
from transduce.models import LAST_CROSS, AttentionRequest, AttentionWeights, Tokens, build

pytest_plugins = ["model_variants"]

SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 28, "d_ff": 44, "heads": 4, "vocab_size": 31}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def test_the_variants_have_every_value_of_every_choice(variants):
    """So that a kind of model that is new is tried by what follows."""
    configs = [preset("base", {**SIZES, **changes}).model_dump() for changes in variants.values()]
    for name, field in TransformerConfig.model_fields.items():
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        assert {config[name] for config in configs} >= set(choices)


@pytest.fixture
def model(variant):
    torch.manual_seed(13)
    return build(preset("base", {**SIZES, **variant})).eval()


SOURCE = Tokens(torch.tensor([[5, 6, 7, 8, 9], [10, 11, 0, 0, 0], [12, 13, 14, 0, 0]]), torch.tensor([5, 2, 3]))
TARGET = torch.tensor([[1, 15, 16, 17], [1, 18, 19, 20], [1, 21, 22, 23]])


def whole(model, source, target):
    """Logits of every position of complete targets."""
    lengths = torch.full((len(target),), target.shape[1])
    tokens = Tokens(target, lengths)
    return tokens.layout().pad(model.project(model.decode(model.encode(source), tokens).hidden))


def rows(ids, beam):
    return ids.repeat_interleave(beam)


# All models take steps, and each test of what else becomes of a state has half of them.
HALF, OTHER_HALF = [*every(2, VARIANTS)], [*every(2, VARIANTS, 1)]
BEAMS = [
    pytest.param(VARIANTS[name], beam, id=one.id, marks=one.marks)
    for one in one_each(VARIANTS, [1, 3])
    for name, beam in [one.values]
]


@torch.no_grad()
@pytest.mark.parametrize(("variant", "beam"), BEAMS, indirect=["variant"])
def test_steps_equal_the_whole(model, beam):
    state = model.start(model.encode(SOURCE), beam)
    expected = whole(model, SOURCE, TARGET)
    for time in range(4):
        step = model.step(state, rows(TARGET[:, time], beam))
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, time].repeat_interleave(beam, 0), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("variant", HALF, indirect=True)
def test_reorder_moves_histories(model):
    state = model.start(model.encode(SOURCE), 2)
    first = torch.tensor([1, 1, 1, 1, 1, 1])
    state = model.step(state, first).state
    second = torch.tensor([15, 24, 18, 25, 21, 26])
    state = model.step(state, second).state
    order = torch.tensor([1, 0, 3, 3, 4, 4])
    third = torch.tensor([5, 6, 7, 8, 9, 10])
    found = model.step(state.reorder(order), third).logits
    for row in range(6):
        history = torch.tensor([[1, second[order[row]], third[row]]])
        alone = Tokens(SOURCE.ids[row // 2 : row // 2 + 1], SOURCE.lengths[row // 2 : row // 2 + 1])
        torch.testing.assert_close(found[row], whole(model, alone, history)[0, -1], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("variant", OTHER_HALF, indirect=True)
def test_release_lets_sentences_go(model):
    state = model.start(model.encode(SOURCE), 2)
    for time in range(2):
        state = model.step(state, rows(TARGET[:, time], 2)).state
    state = state.release(torch.tensor([False, True, False]))
    found = model.step(state, rows(TARGET[[0, 2], 2], 2)).logits
    torch.testing.assert_close(found, whole(model, SOURCE, TARGET)[[0, 2], 2].repeat_interleave(2, 0), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("variant", OTHER_HALF, indirect=True)
def test_admit_takes_sentences_in_at_any_time(model):
    older = Tokens(SOURCE.ids[:2], SOURCE.lengths[:2])
    newer = Tokens(SOURCE.ids[2:, :3], SOURCE.lengths[2:])
    state = model.start(model.encode(older), 2)
    for time in range(3):
        state = model.step(state, rows(TARGET[:2, time], 2)).state
    joined = model.step(model.start(model.encode(newer), 2), rows(TARGET[2:, 0], 2)).state
    state = state.admit(joined)
    step = model.step(state, rows(torch.cat([TARGET[:2, 3], TARGET[2:, 1]]), 2))
    expected = whole(model, SOURCE, TARGET)
    torch.testing.assert_close(step.logits[:4], expected[:2, 3].repeat_interleave(2, 0), **CLOSE)
    torch.testing.assert_close(step.logits[4:], expected[2:, 1].repeat_interleave(2, 0), **CLOSE)
    # When the longest have left, the others go on as if they had been alone, in a state no wider than they need.
    state = step.state.release(torch.tensor([True, True, False]))
    assert all(not isinstance(past, KeyValues) or past.key.shape[2] == 2 for past in state.past)
    torch.testing.assert_close(
        model.step(state, rows(TARGET[2:, 2], 2)).logits, expected[2:, 2].repeat_interleave(2, 0), **CLOSE
    )


@torch.no_grad()
@pytest.mark.parametrize("variant", HALF, indirect=True)
def test_attention_is_given_when_asked_for(model):
    state = model.start(model.encode(SOURCE), 2)
    step = model.step(state, rows(TARGET[:, 0], 2))
    assert step.attention == {}
    found = model.step(step.state, rows(TARGET[:, 1], 2), attention=LAST_CROSS).attention
    assert [*found] == [len(model.decoder) - 1]
    (weights,) = found.values()
    assert weights.shape == (6, 4, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, 4))
    assert weights[2:4, :, 2:].eq(0).all()  # the second source has two symbols
    # One forced pass over the whole target gives the same, and every layer's.
    target = Tokens(TARGET, torch.full((3,), 4))
    assert model.decode(model.encode(SOURCE), target).attention == AttentionWeights()
    layers = model.decode(model.encode(SOURCE), target, attention=AttentionRequest(cross="all")).attention.cross
    assert [*layers] == [*range(len(model.decoder))]
    assert [tuple(layer.shape) for layer in layers.values()] == [(3, 4, 4, 5)] * len(model.decoder)
    torch.testing.assert_close(weights, layers[len(layers) - 1][:, :, 1].repeat_interleave(2, 0), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(("positions", "norm"), [*one_each(["sinusoidal", "relative"], ["post", "pre"])])
def test_an_attention_window_much_shorter_than_the_output(positions, norm):
    """53 symbols are more than three blocks of 16: read at once they go block by block, read one at a time they do not.

    Sentences that come in later have padding in front, at the end more of it than the window is long.
    """
    torch.manual_seed(13)
    model = build(preset("base", {**SIZES, "positions": positions, "norm": norm, "attention_window": 7})).eval()
    target = torch.randint(4, 31, (3, 53))
    expected, memory = whole(model, SOURCE, target), model.encode(SOURCE)
    state = model.start(memory, 1)
    for time in range(53):
        step = model.step(state, target[:, time])
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, time], **CLOSE)
    state, late = model.start(memory, 2), 41
    for time in range(late):
        state = model.step(state, rows(target[:, time], 2)).state
    state = state.admit(model.start(memory, 2))
    for time in range(late, 53):
        step = model.step(state, rows(torch.cat([target[:, time], target[:, time - late]]), 2))
        state = step.state
        both = torch.cat([expected[:, time], expected[:, time - late]])
        torch.testing.assert_close(step.logits, both.repeat_interleave(2, 0), **CLOSE)
