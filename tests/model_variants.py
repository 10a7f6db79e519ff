"""Every kind of model that there is, as changes of a small one; test modules ask for it by ``pytest_plugins``."""

from typing import Any, Final

import pytest

from transduce.kernels import local

VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "post": {},
    "pre": {"norm": "pre"},
    "none": {"positions": "none"},
    "learned": {"positions": "learned", "max_positions": 7},
    "relative": {"positions": "relative", "max_relative_distance": 2},
    "beside": {"position_combination": "concatenate"},
    "learned beside": {"positions": "learned", "max_positions": 7, "position_combination": "concatenate"},
    "every layer": {"positions_at_every_layer": True},
    "beside at every layer": {"positions_at_every_layer": True, "position_combination": "concatenate", "norm": "pre"},
    "dot product": {"compatibility": "dot_product"},
    "multiplicative": {"compatibility": "multiplicative"},
    "additive": {"compatibility": "additive"},
    "additive relative": {"compatibility": "additive", "positions": "relative", "max_relative_distance": 2},
    "attention_window": {"attention_window": 2},
    "relative attention_window": {
        "attention_window": 3,
        "positions": "relative",
        "max_relative_distance": 1,
        "norm": "pre",
    },
    "parameter attention": {"feed_forward": "parameter_attention", "parameter_heads": 3, "parameter_keys": 11},
    "average": {"decoder_self_attention": "average"},
    "plain average": {
        "decoder_self_attention": "average",
        "average_feed_forward": False,
        "average_gate": False,
        "norm": "pre",
    },
    "mixture of experts": {
        "feed_forward": "mixture_of_experts",
        "experts": 5,
        "experts_per_token": 3,
        "expert_balance": "pair",  # of a batch, it is another one wherever batches are cut
    },
    "switch": {
        "feed_forward": "mixture_of_experts",
        "experts": 3,
        "experts_per_token": 1,
        "expert_noise": False,
        "importance_loss": 0.0,
        "activation": "silu",
        "norm": "pre",
    },
    "gelu": {"activation": "gelu"},
    "gated": {"feed_forward": "gated", "activation": "silu", "feed_forward_bias": False, "norm": "pre"},
    "output bias": {"output_bias": True, "embedding_norm": True, "activation": "gelu_tanh"},
    "pre, bare": {"norm": "pre", "final_norm": False, "scale_embedding": False},
    "post, normalized": {"final_norm": True},
    "untied": {"tied_projection": False},
    "no source end": {"source_end": False},
    # Without residuals, what tells positions apart is soon lost: one layer still shows it.
    "no residual": {"residual": False, "encoder_layers": 1, "decoder_layers": 1},
    "widths": {"d_k": 5, "d_v": 3, "attention_bias": True, "initializer": "unit_scaling"},
    "layout": {"sinusoid_layout": "concatenated", "sinusoid_range": "closed", "sinusoid_start": 2},
}


@pytest.fixture
def variants() -> dict[str, dict[str, Any]]:
    """All of them, by name."""
    return VARIANTS


@pytest.fixture(params=[*VARIANTS.values()], ids=[*VARIANTS])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One of them. Blocks of restricted attention are as short as its reach, so that few symbols make several."""
    monkeypatch.setattr(local, "_SMALLEST_BLOCK", 1)
    changes: dict[str, Any] = request.param
    return changes
