"""Position-wise feed-forward networks (section 3.3)."""

from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import feed_forward as transform
from transduce.layers.dropout import Dropout
from transduce.layers.linear import join_maps, make_linear
from transduce.layers.parameter_attention import ParameterAttention


@final
class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same for every position; dropout, where asked for, after the ReLU."""

    def __init__(self, config: ModelConfig, number: int = 0) -> None:
        super().__init__()
        self.inner = make_linear(config.d_model, config.d_ff, bias=True, initializer=config.initializer)
        self.outer = make_linear(config.d_ff, config.d_model, bias=True, initializer=config.initializer)
        self.dropout = Dropout(config.relu_dropout, number)

    def forward(
        self, x: Float[Tensor, "*positions model"], seeds: Int[Tensor, "*positions"] | None = None
    ) -> Float[Tensor, "*positions model"]:
        """Transform each position on its own; ``seeds`` are what dropout follows from."""
        inner, outer = join_maps(self.inner), join_maps(self.outer)
        if inner is not None and outer is not None:
            return transform(x, inner, outer, self.dropout.at(seeds))
        # Packed for use: maps of their own.
        result: Tensor = self.outer(self.dropout(torch.relu(self.inner(x)), seeds))
        return result


def feed_forward(config: ModelConfig, number: int = 0) -> FeedForward | ParameterAttention:
    """The sub-layer that transforms each position on its own; ``number`` is its dropout's in the model."""
    match config.feed_forward:
        case "relu":
            return FeedForward(config, number)
        case "parameter_attention":
            return ParameterAttention(config, number)
        case _:
            assert_never(config.feed_forward)
