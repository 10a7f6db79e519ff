"""The models that benchmarks train, in the one form that all peers can compute too."""

import argparse
from typing import Any, Final

from transduce.config import TransformerConfig

SIZES: Final[dict[str, dict[str, Any]]] = {
    "base": {},
    "big": {"d_model": 1024, "d_ff": 4096, "heads": 16},
    # of recipes/multi30k.toml
    "recipe": {"encoder_layers": 4, "decoder_layers": 4, "d_model": 256, "d_ff": 512, "heads": 4},
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "d_model": 128, "d_ff": 256, "heads": 4},
}
# What Marian's models have and the paper's formulas leave open, or out.
_MARIAN: Final = {"attention_bias": True, "sinusoid_layout": "concatenated", "norm_epsilon": 1e-5}


def make_config(size: str, vocab_size: int, **changes: object) -> TransformerConfig:
    """A size with the paper's dropout and label smoothing of 0.1, and whatever is changed of it."""
    return TransformerConfig.model_validate({**SIZES[size], **_MARIAN, "vocab_size": vocab_size, **changes})


def describe(config: TransformerConfig) -> str:
    """Layers, widths and heads."""
    layers = f"{config.encoder_layers}+{config.decoder_layers} layers"
    return f"{layers} of {config.d_model}/{config.d_ff}, {config.heads} heads, {config.norm}-norm"


def parse_sizes(text: str) -> list[str]:
    """Names of sizes, separated by commas, from a command line."""
    names = text.split(",")
    if unknown := set(names) - set(SIZES):
        raise argparse.ArgumentTypeError(f"no such size: {', '.join(unknown)}; there are {', '.join(SIZES)}")
    return names
