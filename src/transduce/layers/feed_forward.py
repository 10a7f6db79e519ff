"""Position-wise feed-forward networks (section 3.3)."""

from dataclasses import dataclass
from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import RecurrentConfig, TransformerConfig
from transduce.config.model import Activation, Initializer
from transduce.kernels import Transforming, activate
from transduce.kernels import feed_forward as transform
from transduce.layers.dropout import Dropout
from transduce.layers.linear import Linear, PendingBias, join_maps, make_linear, split_bias, with_pending
from transduce.layers.mixture_of_experts import Gating, MixtureOfExperts
from transduce.layers.parameter_attention import ParameterAttention


@final
@dataclass(frozen=True)
class FeedForwardShape:
    """What a feed-forward network is: ``hidden`` units between two maps, of and to vectors ``width`` wide."""

    width: int
    hidden: int
    activation: Activation = "relu"
    gated: bool = False
    bias: bool = True
    initializer: Initializer = "glorot_uniform"
    dropout: float = 0.0

    @classmethod
    def of(cls, config: TransformerConfig) -> "FeedForwardShape":
        """That of a Transformer's sub-layers, or of each of their experts."""
        return cls(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            gated=config.feed_forward == "gated",
            bias=config.feed_forward_bias,
            initializer=config.initializer,
            dropout=config.activation_dropout,
        )


@final
class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2, the same for every position; dropout, where asked for, after the activation f.

    As published, f(x) = max(0, x). A gated network multiplies f(x G + c) by x W_1 + b_1 (GLU variants, Shazeer 2020).
    """

    def __init__(self, shape: FeedForwardShape, number: int = 0) -> None:
        super().__init__()
        self.inner = self._make_map(shape, shape.width, shape.hidden)
        self.outer = self._make_map(shape, shape.hidden, shape.width)
        self.gate = self._make_map(shape, shape.width, shape.hidden) if shape.gated else None
        self.activation, self.dropout = shape.activation, Dropout(shape.dropout, number)

    def forward(
        self,
        x: Float[Tensor, "*positions model"],
        seeds: Int[Tensor, "*positions"] | None = None,
        *,
        defer_bias: bool = False,
    ) -> Float[Tensor, "*positions model"] | PendingBias:
        """Transform each position on its own; ``seeds`` are what dropout follows from.

        With ``defer_bias``, the output's bias may be left to whoever joins it to the residual stream.
        """
        inner = self.inside(seeds)
        if inner is not None:
            after, bias = split_bias(x, inner.after) if defer_bias else (inner.after, None)
            return with_pending(transform(x, inner.before, after, inner.activation, inner.dropped), bias)
        # Quantized: prepacked maps.
        hidden = torch.cat([each(x) for each in self.inner_maps], dim=-1)
        hidden = activate(hidden, self.activation, gated=self.gate is not None)
        result: Tensor = self.outer(self.dropout(hidden, seeds))
        return result

    def inside(self, seeds: Int[Tensor, "*positions"] | None) -> Transforming | None:
        """What ``forward`` does, to be done among other sub-layers; None where a map is prepacked."""
        before, after = join_maps(*self.inner_maps), join_maps(self.outer)
        if before is None or after is None:
            return None
        return Transforming(before, after, self.activation, self.dropout.at(seeds))

    @property
    def inner_maps(self) -> list[nn.Module]:
        """The maps of the input, a gated network's gate first."""
        return [self.inner] if self.gate is None else [self.gate, self.inner]

    @staticmethod
    def _make_map(shape: FeedForwardShape, inputs: int, outputs: int) -> Linear:
        return make_linear(inputs, outputs, bias=shape.bias, initializer=shape.initializer)


FeedForwardSublayer = FeedForward | MixtureOfExperts | ParameterAttention


def feed_forward(config: TransformerConfig, number: int = 0) -> FeedForwardSublayer:
    """The sub-layer that transforms each position on its own; ``number`` is its dropout's in the model."""
    match config.feed_forward:
        case "mlp" | "gated":
            return FeedForward(FeedForwardShape.of(config), number)
        case "parameter_attention":
            return ParameterAttention(config, number)
        case "mixture_of_experts":
            return mixture_of_experts(config, FeedForwardShape.of(config), number)
        case _:
            assert_never(config.feed_forward)


def mixture_of_experts(
    config: TransformerConfig | RecurrentConfig, expert: FeedForwardShape, number: int = 0
) -> MixtureOfExperts:
    """A mixture of networks of that shape; ``number`` is that of its random decisions in the model."""
    gating = Gating(
        chosen=config.experts_per_token,
        noise=config.expert_noise,
        importance_loss=config.importance_loss,
        load_loss=config.load_loss,
        balance=config.expert_balance,
    )
    experts = (FeedForward(expert, number) for _ in range(config.experts))
    return MixtureOfExperts(experts, expert.width, gating, number)
