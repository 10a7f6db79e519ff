"""Embeddings and the pre-softmax projection, which share one matrix (section 3.4)."""

import math
from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import ModelConfig
from transduce.kernels import dropout
from transduce.layers.positions import SinusoidalPositions


@final
class Embedding(nn.Module):
    """One matrix of shape (vocabulary, d_model): rows embed symbols, and score them as output."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        # N(0, 1 / d_model): scaled by sqrt(d_model) on the way in, the embeddings have unit variance.
        nn.init.normal_(self.weight, std=1 / self.scale)
        self.dropout = config.dropout
        self.positions = _positions(config)

    def forward(
        self, ids: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"], longest: int
    ) -> Float[Tensor, "batch length model"]:
        """Dropout(sqrt(d_model) E[ids] + PE[positions]), all positions being below ``longest``."""
        x = F.embedding(ids, self.weight) * self.scale
        if self.positions is not None:
            x = x + self.positions(positions, longest)
        return dropout(x, self.dropout, training=self.training)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of every symbol of the vocabulary."""
        return F.linear(hidden, self.weight)


def _positions(config: ModelConfig) -> SinusoidalPositions | None:
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config)
        case "none":
            return None
        case _:
            assert_never(config.positions)
