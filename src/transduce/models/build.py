"""The only place that chooses between models."""

import torch

from transduce.config import ModelConfig
from transduce.models.transformer import Transformer


def build(config: ModelConfig) -> Transformer:
    """A model of that configuration with fresh weights."""
    return Transformer(config)


def build_without_storage(config: ModelConfig) -> Transformer:
    """A model that has shapes and no values."""
    with torch.device("meta"):
        return build(config)
