"""Position-wise feed-forward networks (section 3.3)."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.layers.linear import glorot_linear


@final
class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same for every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = glorot_linear(config.d_model, config.d_ff, bias=True)
        self.outer = glorot_linear(config.d_ff, config.d_model, bias=True)

    def forward(self, x: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions model"]:
        """Transform each position on its own."""
        result: Tensor = self.outer(torch.relu(self.inner(x)))
        return result
