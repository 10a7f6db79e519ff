"""The only place that chooses between models."""

import torch

from transduce.config import ModelConfig
from transduce.kernels import Format
from transduce.models.narrow import narrow
from transduce.models.packed import PackedTransformer
from transduce.models.packed_stacks import can_pack
from transduce.models.transformer import Transformer


def build(config: ModelConfig) -> Transformer:
    """A model of that configuration with fresh weights."""
    return Transformer(config)


def build_without_storage(config: ModelConfig) -> Transformer:
    """A model that has shapes and no values."""
    with torch.device("meta"):
        return build(config)


def make_ready(model: Transformer, format_: Format) -> Transformer | PackedTransformer:
    """The model for use alone, in a number format: packed where the C++ kernels can do what it does. Uses it up."""
    if can_pack(model):
        return PackedTransformer(model, format_)
    return narrow(model, format_)
