"""The only place that chooses between models."""

from transduce.config import ModelConfig
from transduce.models.transformer import Transformer


def build(config: ModelConfig) -> Transformer:
    """A model of that configuration with fresh weights."""
    return Transformer(config)
