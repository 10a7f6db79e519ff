"""The encoder's and the decoder's layers (section 3.1)."""

from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import Mask
from transduce.layers import KeyValues, MultiHeadAttention, Residual, feed_forward


@final
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each inside its residual."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, relative=config.positions == "relative")
        self.self_attention_residual = Residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Float[Tensor, "batch source model"], mask: Mask) -> Float[Tensor, "batch source model"]:
        """Let every position look at the positions that the mask lets it see."""
        query = self.self_attention_residual.prepare(x)
        output = self.self_attention(query, self.self_attention.key_values(query), mask)
        x = self.self_attention_residual.add(x, output)
        output = self.feed_forward(self.feed_forward_residual.prepare(x))
        return self.feed_forward_residual.add(x, output)


@final
class DecoderLayer(nn.Module):
    """Self-attention over the past, attention over the encoder's output, then a feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, relative=config.positions == "relative")
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def attend_past(
        self, x: Float[Tensor, "rows new model"], past: KeyValues | None, mask: Mask
    ) -> tuple[Float[Tensor, "rows new model"], KeyValues]:
        """The self-attention sub-layer over ``past`` and ``x`` itself; also returns the past for the next position."""
        query = self.self_attention_residual.prepare(x)
        newest = self.self_attention.key_values(query)
        past = newest if past is None else past.append(newest)
        return self.self_attention_residual.add(x, self.self_attention(query, past, mask)), past

    def attend_memory(
        self, x: Float[Tensor, "batch queries model"], memory: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch queries model"]:
        """The encoder-decoder attention sub-layer."""
        query = self.cross_attention_residual.prepare(x)
        return self.cross_attention_residual.add(x, self.cross_attention(query, memory, mask))

    def memory_weights(
        self, x: Float[Tensor, "batch queries model"], memory: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch heads queries source"]:
        """How ``attend_memory`` weighs the source's positions."""
        return self.cross_attention.weights(self.cross_attention_residual.prepare(x), memory, mask)

    def transform(self, x: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions model"]:
        """The feed-forward sub-layer."""
        return self.feed_forward_residual.add(x, self.feed_forward(self.feed_forward_residual.prepare(x)))
