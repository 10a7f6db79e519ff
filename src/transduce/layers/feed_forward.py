"""Position-wise feed-forward networks (section 3.3)."""

from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import activate
from transduce.kernels import feed_forward as transform
from transduce.layers.dropout import Dropout
from transduce.layers.linear import join_maps, make_linear
from transduce.layers.mixture_of_experts import Gating, MixtureOfExperts
from transduce.layers.parameter_attention import ParameterAttention


@final
class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2, the same for every position; dropout, where asked for, after the activation f.

    As published, f(x) = max(0, x). A gated network multiplies f(x G + c) by x W_1 + b_1 (GLU variants, Shazeer 2020).
    """

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        bias, initializer = config.feed_forward_bias, config.initializer
        self.inner = make_linear(config.d_model, config.d_ff, bias=bias, initializer=initializer)
        self.outer = make_linear(config.d_ff, config.d_model, bias=bias, initializer=initializer)
        gated = config.feed_forward == "gated"
        self.gate = make_linear(config.d_model, config.d_ff, bias=bias, initializer=initializer) if gated else None
        self.activation, self.dropout = config.activation, Dropout(config.activation_dropout, number)

    def forward(
        self, x: Float[Tensor, "*positions model"], seeds: Int[Tensor, "*positions"] | None = None
    ) -> Float[Tensor, "*positions model"]:
        """Transform each position on its own; ``seeds`` are what dropout follows from."""
        inner, outer = join_maps(*self.inner_maps), join_maps(self.outer)
        if inner is not None and outer is not None:
            return transform(x, inner, outer, self.activation, self.dropout.at(seeds))
        # Quantized: prepacked maps.
        hidden = torch.cat([each(x) for each in self.inner_maps], dim=-1)
        hidden = activate(hidden, self.activation, gated=self.gate is not None)
        result: Tensor = self.outer(self.dropout(hidden, seeds))
        return result

    @property
    def inner_maps(self) -> list[nn.Module]:
        """The maps of the input, a gated network's gate first."""
        return [self.inner] if self.gate is None else [self.gate, self.inner]


FeedForwardSublayer = FeedForward | MixtureOfExperts | ParameterAttention


def feed_forward(config: TransformerConfig, number: int = 0) -> FeedForwardSublayer:
    """The sub-layer that transforms each position on its own; ``number`` is its dropout's in the model."""
    match config.feed_forward:
        case "mlp" | "gated":
            return FeedForward(config, number)
        case "parameter_attention":
            return ParameterAttention(config, number)
        case "mixture_of_experts":
            gating = Gating(
                chosen=config.experts_per_token,
                noise=config.expert_noise,
                importance_loss=config.importance_loss,
                load_loss=config.load_loss,
                balance=config.expert_balance,
            )
            experts = (FeedForward(config, number) for _ in range(config.experts))
            return MixtureOfExperts(experts, config.d_model, gating, number)
        case _:
            assert_never(config.feed_forward)
