"""What a recurrent model's settings fill in, and what they refuse."""

import pytest
from pydantic import ValidationError

from transduce.config import RecurrentConfig

EXPERTS = {"feed_forward": "mixture_of_experts", "encoder_layers": 3}


def test_blanks_are_filled_in():
    config = RecurrentConfig.model_validate({"dropout": 0.3, "embedding_size": 7, "readout_dropout": 0.1})
    assert (config.embedding_dropout, config.readout_dropout, config.readout_size) == (0.3, 0.1, 7)
    state = RecurrentConfig.model_validate({"readout": "state", "hidden_size": 11, "tied_projection": False})
    assert (state.readout_size, state.embedding_size) == (11, 512)
    # The top layer's dropout falls on its state: no second one, unless it is asked for.
    assert (state.dropout, state.readout_dropout, state.embedding_dropout) == (0.2, 0.0, 0.2)
    dropped = {"readout": "state", "hidden_size": 11, "tied_projection": False, "dropout": 0.4}
    assert RecurrentConfig.model_validate(dropped).readout_dropout == 0
    assert RecurrentConfig.model_validate(dropped | {"readout_dropout": 0.1}).readout_dropout == 0.1
    assert state.longest is None


@pytest.mark.parametrize(
    ("changes", "summary", "memory"),
    [
        ({"directions": "one"}, 7, 7),
        ({"directions": "first"}, 14, 14),
        ({"directions": "first", "encoder_layers": 2}, 7, 7),
        ({"directions": "all", "encoder_layers": 2}, 14, 14),
        ({"directions": "all", "fast_forward": True}, 14, 42),
        ({"directions": "interleaved", "fast_forward": True, "cell": "gru"}, 14, 34),
    ],
)
def test_the_encoder_s_widths_follow_from_its_directions(changes, summary, memory):
    config = RecurrentConfig.model_validate({"hidden_size": 7} | changes)
    assert (config.summary_size, config.memory_size) == (summary, memory)


def test_experts_are_below_the_top_layer_or_between_all():
    none = RecurrentConfig(encoder_layers=3)
    top = RecurrentConfig.model_validate(EXPERTS)
    everywhere = RecurrentConfig.model_validate(EXPERTS | {"expert_places": "all", "expert_noise": False})
    places = [[number for number in (1, 2, 3) if each.has_experts_below(number, 3)] for each in (none, top, everywhere)]
    assert places == [[], [3], [2, 3]]
    assert not everywhere.has_experts_below(1, 1)
    assert everywhere.load_loss == 0  # without noise
    assert [each.mixtures for each in (none, top, everywhere)] == [0, 1, 2]
    assert [each.least_tensors for each in (none, top, everywhere)] == [4, 12, 20]
    assert top.model_copy(update={"directions": "interleaved"}).mixtures == 2  # one in each of two stacks
    assert top.summary == "3 + 1 layers of LSTM, hidden 512, 8 experts of 2,048"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_feeding": False}, "input_feeding = false is for attention = 'luong'"),
        (
            {"attention": "luong", "readout": "maxout"},
            "readout = 'maxout' is for attention = 'none' or 'bahdanau' or 'gnmt'",
        ),
        ({"readout": "state", "hidden_size": 7, "readout_size": 5}, "leave readout_size out"),
        ({"readout_size": 5}, "a readout of 5 cannot be scored by embeddings of 512: make readout_size as large"),
        ({"readout": "state", "hidden_size": 7}, "a readout of 7 .* of 512: make hidden_size as large"),
        ({"attention_score": "dot"}, "choose 'general', or directions = 'one'"),
        (
            {"attention_score": "dot", "directions": "one", "fast_forward": True},
            "choose 'general', or fast_forward = false",
        ),
        ({"residual_from": 3}, "residual_from = 3: no side has more layers than 1: leave it out"),
        (
            {"attention_score": "dot", "fast_forward": True},
            "choose 'general', or fast_forward = false with directions = 'one'",
        ),
        ({"residual_from": 2, "encoder_layers": 3, "directions": "first"}, "begin at 3"),
        ({"residual_from": 2, "encoder_layers": 3, "fast_forward": True}, "leave one of them out"),
        ({"attention": "gnmt"}, "set decoder_layers to 2 or more"),
        ({"experts": 3}, "experts = 3 is for feed_forward = 'mixture_of_experts'"),
        ({"feed_forward": "mixture_of_experts"}, "stands between layers, and neither side has two"),
        (
            {**EXPERTS, "expert_places": "all", "encoder_layers": 7, "experts": 3000},
            "experts = 3,000 in each of 6 layers are 18,000 networks: at most 16,384 are possible",
        ),
        ({**EXPERTS, "experts": 3, "experts_per_token": 5}, "experts_per_token = 5, but there are experts = 3"),
        ({**EXPERTS, "expert_noise": False, "load_loss": 0.1}, "load_loss = 0.1 needs expert_noise = true"),
        ({**EXPERTS, "feed_forward": "mlp"}, "'none' or 'mixture_of_experts'"),
        ({"hidden_size": 0}, "greater than or equal to 1"),
        ({"d_model": 512}, "Extra inputs"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        RecurrentConfig.model_validate(changes)
