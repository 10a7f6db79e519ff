import math

import pytest
import torch

from transduce.config import preset
from transduce.layers import PositionalEncoding, Stream, sinusoids
from transduce.models import build

COLUMNS = torch.arange(11).unsqueeze(0)


def encoding(**changes):
    return PositionalEncoding(preset("tiny", {"dropout": 0.0, **changes}))


def test_sinusoids_are_added():
    x = torch.randn(2, 11, 128)
    expected = x + sinusoids(COLUMNS, 128, "interleaved", "open")
    torch.testing.assert_close(encoding()(x, COLUMNS, 11), expected)


def test_the_first_position_may_have_another_number():
    x = torch.zeros(1, 11, 128)
    expected = sinusoids(COLUMNS + 2, 128, "interleaved", "open")
    assert torch.equal(encoding(sinusoid_start=2)(x, COLUMNS, 11), expected)
    assert torch.equal(encoding(sinusoid_start=2).vectors(11), expected[0])


@pytest.mark.parametrize("positions", ["none", "relative"])
def test_nothing_is_added_where_positions_come_in_elsewhere(positions):
    x = torch.randn(2, 11, 128)
    assert encoding(positions=positions)(x, COLUMNS, 11) is x


def test_learned_positions_are_rows_of_a_table():
    learned = encoding(positions="learned", max_positions=13)
    assert [tuple(weight.shape) for weight in learned.parameters()] == [(13, 128)]
    x = torch.randn(2, 11, 128)
    torch.testing.assert_close(learned(x, COLUMNS, 11), x + next(learned.parameters())[:11])


def test_a_sequence_past_the_learned_positions_is_refused():
    learned = encoding(positions="learned", max_positions=7)
    with pytest.raises(ValueError, match=r"11 symbols.*max_positions = 7"):
        learned(torch.randn(2, 11, 128), COLUMNS, 11)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_sum_is_a_special_case_of_concatenation(positions):
    beside = encoding(positions=positions, position_combination="concatenate")
    assert beside.join.weight.shape == (128, 256)
    with torch.no_grad():
        beside.join.weight.copy_(torch.cat([torch.eye(128), torch.eye(128)], dim=1))
    x = torch.randn(2, 11, 128)
    torch.testing.assert_close(beside(x, COLUMNS, 11), x + beside.table(COLUMNS, 11))


def test_positions_come_in_again_where_asked_for():
    x = torch.randn(2, 11, 128)
    stream = Stream(x, pending=torch.ones_like(x))
    assert encoding().again(stream, COLUMNS, 11) is stream
    every = encoding(positions_at_every_layer=True)
    torch.testing.assert_close(every.again(stream, COLUMNS, 11).settle(), every(x + 1, COLUMNS, 11))


def test_dropout_falls_on_the_sum():
    dropping = encoding(embedding_dropout=0.5).train()
    x = torch.full((2, 11, 128), math.pi)  # no sum with a sinusoid is 0
    assert 0.4 < (dropping(x, COLUMNS, 11) == 0).float().mean().item() < 0.6


def test_the_table_grows_past_what_it_was_built_for():
    far = torch.arange(997).unsqueeze(0)
    grown = encoding()(torch.zeros(1, 997, 128), far, 997)
    torch.testing.assert_close(grown, sinusoids(far, 128, "interleaved", "open"))


def test_the_table_is_never_saved():
    assert not encoding().state_dict()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("combination", ["add", "concatenate"])
def test_autocast_leaves_the_residual_sums_their_digits(positions, combination):
    """A map's result has autocast's few digits; all that later layers add to it would be rounded to as many."""
    joining = encoding(positions=positions, position_combination=combination)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        joined = joining(torch.randn(2, 11, 128), COLUMNS, 11)
    assert joined.dtype == torch.float32


def test_the_encoders_and_the_decoders_positions_are_their_own():
    model = build(preset("tiny", {"positions": "learned", "max_positions": 13, "vocab_size": 31}))
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters() if "positions" in name}
    assert shapes == {"encoder_positions.table.weight": (13, 128), "decoder_positions.table.weight": (13, 128)}


def test_learned_positions_start_with_a_variance_of_1_over_d_model():
    weight = encoding(positions="learned", max_positions=997).table.weight.detach()
    assert weight.var().item() == pytest.approx(1 / 128, rel=5 * math.sqrt(2 / weight.numel()))
