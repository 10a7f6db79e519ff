"""What a recurrent model's settings fill in, and what they refuse."""

import pytest
from pydantic import ValidationError

from transduce.config import RecurrentConfig


def test_blanks_are_filled_in():
    config = RecurrentConfig.model_validate({"dropout": 0.3, "embedding_size": 7, "readout_dropout": 0.1})
    assert (config.embedding_dropout, config.readout_dropout, config.readout_size) == (0.3, 0.1, 7)
    state = RecurrentConfig.model_validate({"readout": "state", "hidden_size": 11, "tied_projection": False})
    assert (state.readout_size, state.embedding_size) == (11, 512)
    assert state.longest is None


@pytest.mark.parametrize(
    ("changes", "summary", "memory"),
    [
        ({"directions": "one"}, 7, 7),
        ({"directions": "first"}, 14, 14),
        ({"directions": "first", "encoder_layers": 2}, 7, 7),
        ({"directions": "all", "encoder_layers": 2}, 14, 14),
        ({"directions": "all", "fast_forward": True}, 14, 21),
        ({"directions": "interleaved", "fast_forward": True}, 14, 28),
    ],
)
def test_the_encoder_s_widths_follow_from_its_directions(changes, summary, memory):
    config = RecurrentConfig.model_validate({"hidden_size": 7} | changes)
    assert (config.summary_size, config.memory_size) == (summary, memory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_feeding": False}, "input_feeding = False is for attention = 'luong'"),
        (
            {"attention": "luong", "readout": "maxout"},
            "readout = 'maxout' is for attention = 'none' or 'bahdanau' or 'gnmt'",
        ),
        ({"readout": "state", "hidden_size": 7, "readout_size": 5}, "leave readout_size out"),
        ({"readout_size": 5}, "a readout of 5 cannot be scored by embeddings of 512"),
        ({"residual_from": 3}, "residual_from = 3: there are 1 layers"),
        ({"residual_from": 2, "encoder_layers": 3, "directions": "first"}, "begin at 3"),
        ({"residual_from": 2, "encoder_layers": 3, "fast_forward": True}, "leave one of them out"),
        ({"attention": "gnmt"}, "set decoder_layers to 2 or more"),
        ({"hidden_size": 0}, "greater than or equal to 1"),
        ({"d_model": 512}, "Extra inputs"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        RecurrentConfig.model_validate(changes)
