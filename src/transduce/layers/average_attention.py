"""Average attention (Zhang, Xiong and Su 2018) in the place of the decoder's: all of the past weighs the same."""

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import RaggedLayout
from transduce.layers.feed_forward import FeedForward, FeedForwardShape
from transduce.layers.linear import make_linear
from transduce.layers.state import RunningSum, widen


@final
class AverageAttention(nn.Module):
    """h_j = i_j * y_j + f_j * g_j, g_j = FFN((y_1 + ... + y_j) / j), and the gates (i_j, f_j) = sigmoid(W [y_j; g_j]).

    No position looks at another: weights are 1 / j, whatever was read, and a step adds one symbol to a sum. Without
    ``average_feed_forward``, g_j is the mean itself; without ``average_gate``, h_j is g_j. Without both it is the
    plainest attention there is, which has no parameters. ``number`` is that of the network's dropout in the model.
    """

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        width = config.d_model
        self.feed_forward = FeedForward(FeedForwardShape.of(config), number) if config.average_feed_forward else None
        self.gate = (
            make_linear(2 * width, 2 * width, bias=False, initializer=config.initializer)
            if config.average_gate
            else None
        )

    def forward(self, x: Float[Tensor, "symbols model"], layout: RaggedLayout) -> Float[Tensor, "symbols model"]:
        """Each position gathers from its row up to itself."""
        sums = layout.flatten(layout.pad(widen(x)).cumsum(dim=1))
        return self._finish(x, sums / (layout.columns + 1).unsqueeze(1), layout.seeds)

    def step(
        self, x: Float[Tensor, "rows 1 model"], past: RunningSum
    ) -> tuple[Float[Tensor, "rows 1 model"], RunningSum]:
        """The same for the newest position of every row; also returns the past for the next ones."""
        past = past.append(x.squeeze(1))
        return self._finish(x, past.mean().unsqueeze(1), None), past

    def _finish(
        self,
        x: Float[Tensor, "*positions model"],
        mean: Float[Tensor, "*positions model"],
        seeds: Int[Tensor, "*positions"] | None,
    ) -> Float[Tensor, "*positions model"]:
        gathered = mean.to(x.dtype)
        if self.feed_forward is not None:
            gathered = self.feed_forward(gathered, seeds)
        if self.gate is None:
            return gathered
        gates: Tensor = self.gate(torch.cat([x, gathered], dim=-1))
        read, forgotten = gates.sigmoid().chunk(2, dim=-1)
        return read * x + forgotten * gathered


def average_weights(real: Bool[Tensor, "batch length"], heads: int) -> Float[Tensor, "batch heads length length"]:
    """1 / j for each of the first j positions, as every head would have it."""
    length = real.shape[1]
    weights = torch.ones(length, length, device=real.device).tril()
    weights = weights / weights.sum(dim=1, keepdim=True)
    return weights.expand(len(real), heads, length, length)
