"""Settings of recurrent models, each small: every placement of attention, depth, and way between layers."""

import pytest
import torch

from transduce.config import RecurrentConfig
from transduce.models import Tokens
from transduce.models.recurrent import RecurrentModel

# Numbers that no two sizes share, unless one has to be as large as another.
SIZES = {"vocab_size": 31, "embedding_size": 5, "hidden_size": 7, "readout_size": 5}
VARIANTS: dict[str, dict[str, object]] = {
    "none": {"attention": "none"},
    "none, deep, one direction": {
        **{"attention": "none", "encoder_layers": 2, "decoder_layers": 2, "directions": "one"},
        **{"readout": "maxout", "source_vocab_size": 29},
    },
    "bahdanau": {"attention_size": 11},
    "bahdanau, maxout, deep": {"attention_size": 11, "readout": "maxout", "encoder_layers": 2, "decoder_layers": 2},
    "bahdanau, location": {"attention_size": 11, "attention_score": "location", "attention_filter_width": 3},
    "bahdanau, trainable window": {"attention_size": 11, "attention_window": "trainable"},
    "luong": {"attention": "luong", "attention_score": "general", "decoder_layers": 2},
    "luong without feeding": {"attention": "luong", "attention_score": "general", "input_feeding": False},
    "luong, residual": {
        **{"attention": "luong", "attention_score": "general", "encoder_layers": 3, "decoder_layers": 3},
        **{"residual_from": 2, "directions": "one"},
    },
    "gnmt": {
        **{"attention": "gnmt", "attention_size": 11, "encoder_layers": 4, "decoder_layers": 3},
        **{"directions": "first", "residual_from": 3, "readout": "state", "readout_size": 7},
        **{"tied_projection": False},
    },
    "gnmt, median window": {
        **{"attention": "gnmt", "attention_size": 11, "attention_window": "median", "attention_window_reach": 2},
        "decoder_layers": 2,
    },
    "conditional": {"attention": "conditional", "attention_size": 11, "decoder_start": "mean", "output_bias": True},
    "conditional, deep": {
        **{"attention": "conditional", "attention_size": 11, "attention_score": "location"},
        **{"attention_filter_width": 3, "encoder_layers": 2, "decoder_layers": 2, "directions": "interleaved"},
    },
    "fast-forward": {
        **{"attention_size": 11, "fast_forward": True, "directions": "interleaved"},
        **{"encoder_layers": 3, "decoder_layers": 2},
    },
    "fast-forward, feeding": {
        **{"attention": "luong", "attention_score": "general", "fast_forward": True},
        **{"encoder_layers": 2, "decoder_layers": 3},
    },
    "experts, gnmt": {
        **{"attention": "gnmt", "attention_size": 11, "encoder_layers": 3, "decoder_layers": 2, "directions": "first"},
        **{"readout": "state", "readout_size": 7, "tied_projection": False, "residual_from": 3},
        **{"feed_forward": "mixture_of_experts", "d_ff": 13, "experts": 5, "expert_balance": "pair"},
    },
    "experts, feeding": {
        **{"attention": "luong", "attention_score": "general", "encoder_layers": 2, "decoder_layers": 3},
        **{"feed_forward": "mixture_of_experts", "d_ff": 13, "experts": 3, "expert_places": "all"},
        **{"directions": "interleaved", "fast_forward": True, "expert_balance": "pair"},
    },
    "bahdanau, linear": {"attention_score": "linear", "decoder_layers": 2},
}


def make(changes: dict[str, object], **more: object) -> RecurrentModel:
    """A model of those settings in float64, without dropout."""
    torch.manual_seed(3)
    settings = SIZES | {"dropout": 0.0} | changes | more
    model = RecurrentModel(RecurrentConfig.model_validate(settings)).double()
    with torch.no_grad():  # biases begin at numbers that no test would miss
        for name, weight in model.named_parameters():
            if "bias" in name:
                weight.add_(torch.randn_like(weight) / 3)
            if name.endswith(("mixture.gate", "mixture.noise")):  # which begin at zero
                weight.normal_()
    return model


def tokens(*rows: list[int], seeds: torch.Tensor | None = None) -> Tokens:
    """Rows of ids, padded."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return Tokens(ids, torch.tensor(list(map(len, rows))), seeds)


SOURCE_ROWS = [[5, 7, 11, 13, 17, 19, 2], [23, 28, 2], [3, 4, 6, 8, 2], [9, 2]]
TARGET_ROWS = [[1, 5, 7], [1, 11, 13, 17, 19, 23], [1, 29], [1, 3, 4, 6, 8]]


@pytest.fixture(params=VARIANTS)
def recurrent_variant(request: pytest.FixtureRequest) -> dict[str, object]:
    """One of them after the other, with LSTM and GRU cells by turns."""
    number = list(VARIANTS).index(request.param)
    return VARIANTS[request.param] | {"cell": ("lstm", "gru")[number % 2]}


@pytest.fixture(params=["lstm", "gru"])
def recurrent_cell(request: pytest.FixtureRequest) -> str:
    """Both cells."""
    name: str = request.param
    return name
