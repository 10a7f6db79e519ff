"""The only place that chooses between models."""

from typing import Any, assert_never

import torch

from transduce.config import ConvolutionalConfig, ModelConfig, RecurrentConfig, TransformerConfig
from transduce.kernels import Format
from transduce.models.bytenet import ByteNet
from transduce.models.contract import SizedModel, TrainableModel
from transduce.models.convs2s import ConvS2S
from transduce.models.native import NativeTransformer
from transduce.models.native_stacks import can_run_natively
from transduce.models.quantize import quantize
from transduce.models.recurrent import RecurrentModel
from transduce.models.transformer import Transformer
from transduce.models.unfilled import Unfilled


def build(config: ModelConfig) -> TrainableModel:
    """A model of that configuration with fresh weights."""
    return _choose(config)


def build_unfilled(config: ModelConfig) -> TrainableModel:
    """A model whose weights are still to be read: until then they are whatever its memory held."""
    with Unfilled():
        return build(config)


def build_without_storage(config: ModelConfig) -> TrainableModel:
    """A model that has shapes and no values."""
    with torch.device("meta"):
        return build_unfilled(config)


def make_ready(model: TrainableModel, format_: Format) -> SizedModel[Any, Any]:
    """The model for use alone, in a number format: a native one where the C++ kernels can compute it. Uses it up."""
    return NativeTransformer(model, format_) if can_run_natively(model) else quantize(model, format_)


def _choose(config: ModelConfig) -> TrainableModel:
    match config:
        case TransformerConfig():
            return Transformer(config)
        case ConvolutionalConfig():
            return _choose_network(config)
        case RecurrentConfig():
            return RecurrentModel(config)
        case _:
            assert_never(config)


def _choose_network(config: ConvolutionalConfig) -> TrainableModel:
    match config.network:
        case "convs2s":
            return ConvS2S(config)
        case "bytenet":
            return ByteNet(config)
        case _:
            assert_never(config.network)
