"""The only place that chooses between models."""

import torch

from transduce.config import ModelConfig
from transduce.kernels import Format
from transduce.models.native import NativeTransformer
from transduce.models.native_stacks import can_run_natively
from transduce.models.quantize import quantize
from transduce.models.transformer import Transformer
from transduce.models.unfilled import Unfilled


def build(config: ModelConfig) -> Transformer:
    """A model of that configuration with fresh weights."""
    return Transformer(config)


def build_unfilled(config: ModelConfig) -> Transformer:
    """A model whose weights are still to be read: until then they are whatever its memory held."""
    with Unfilled():
        return build(config)


def build_without_storage(config: ModelConfig) -> Transformer:
    """A model that has shapes and no values."""
    with torch.device("meta"):
        return build_unfilled(config)


def make_ready(model: Transformer, format_: Format) -> Transformer | NativeTransformer:
    """The model for use alone, in a number format: packed where the C++ kernels can do what it does. Uses it up."""
    if can_run_natively(model):
        return NativeTransformer(model, format_)
    return quantize(model, format_)
