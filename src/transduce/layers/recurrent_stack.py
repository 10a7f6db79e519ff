"""What connects the layers of a recurrent stack: directions, residual and fast-forward connections, experts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import RecurrentConfig
from transduce.kernels import RaggedLayout
from transduce.layers.cells import CellState
from transduce.layers.dropout import Dropout
from transduce.layers.feed_forward import FeedForwardShape, mixture_of_experts
from transduce.layers.mixture_of_experts import Choice, Routing
from transduce.layers.reading_order import Direction, ReadingOrder, Rows
from transduce.layers.recurrent import RecurrentLayer


@final
@dataclass(frozen=True)
class Flow:
    """What goes up a stack: the layer's output, and what its fast-forward connection hands on."""

    hidden: Float[Tensor, "*positions width"]
    forwarded: Float[Tensor, "*positions handed_on"] | None = None

    def join(self) -> Float[Tensor, "*positions joined"]:
        """[h; f], which the next layer reads, and whoever reads the top of the stack."""
        return self.hidden if self.forwarded is None else torch.cat([self.hidden, self.forwarded], dim=-1)


@final
class ExpertsBetween(nn.Module):
    """y = x + Dropout(sigmoid(MoE(x))): a mixture of experts between two layers (Shazeer et al. 2017, appendix E).

    Each expert has one hidden layer of ``d_ff`` rectified units.
    """

    def __init__(self, config: RecurrentConfig, width: int, numbers: Iterator[int]) -> None:
        super().__init__()
        self.mixture = mixture_of_experts(config, FeedForwardShape(width, config.d_ff), next(numbers))
        self.dropout = Dropout(config.dropout, next(numbers))

    def forward(
        self, x: Float[Tensor, "symbols width"], seeds: Int[Tensor, " symbols"] | None
    ) -> tuple[Float[Tensor, "symbols width"], Choice]:
        """What the layer above reads, and the experts that were chosen for each symbol."""
        y, choice = self.mixture.transform(x, seeds)
        return x + self.dropout(torch.sigmoid(y), seeds), choice


@final
class RecurrentStackLayer(nn.Module):
    """Layer ``number``, from 1, of a stack: x_k = x_{k-1} + Dropout(RNN(x_{k-1})) from ``residual_from`` on.

    A mixture of experts, where there is one below it, makes x_{k-1} of what the layer below gives.
    With fast-forward connections (Zhou et al. 2016, section 3.1) half of what the gates add up of the input is handed
    on, and read by the next layer beside h_k: a path through all layers without a nonlinearity. ``forwarded`` is the
    width of what comes so from below, and ``also`` that of what else is read: a context, the attentional state. Several
    directions are concatenated.
    """

    def __init__(
        self,
        config: RecurrentConfig,
        number: int,
        inputs: int,
        numbers: Iterator[int],
        *,
        layers: int,
        forwarded: int = 0,
        also: int = 0,
        begins: Sequence[Direction] = ("left",),
    ) -> None:
        super().__init__()
        hidden, handed_on = config.hidden_size, config.handed_on
        self.residual = config.residual_from is not None and number >= config.residual_from
        self.outputs, self.forwarded = hidden * len(begins), handed_on * len(begins)
        read = inputs + forwarded + also
        self.directions = nn.ModuleList(
            RecurrentLayer(config.cell, read, hidden, begin, handed_on=handed_on) for begin in begins
        )
        self.dropout = Dropout(config.dropout, next(numbers))
        between = config.has_experts_below(number, layers)
        self.between = ExpertsBetween(config, inputs, numbers) if between else None

    def forward(
        self,
        flow: Flow,
        order: ReadingOrder,
        *,
        start: CellState | None = None,
        also: Rows | None = None,
    ) -> tuple[Flow, Float[Tensor, "batch outputs"], Routing | None]:
        """All positions at once, the cells' last states, and where the mixture below it sent the symbols."""
        flow, choice = self.pass_experts(flow, order.layout.seeds)
        x = flow.join() if also is None else torch.cat([flow.join(), also], dim=-1)
        hidden, last, forwarded = zip(*(layer(x, order, start) for layer in self._layers), strict=True)
        handed_on = [each for each in forwarded if each is not None]
        flow = self.connect(flow, _join(hidden), _join(handed_on) if handed_on else None, order.layout.seeds)
        return flow, _join(last), self.routing(choice, order.layout)

    def step(
        self, flow: Flow, state: CellState, also: Float[Tensor, "rows also"] | None = None
    ) -> tuple[Flow, CellState]:
        """One more position of every row."""
        flow, _ = self.pass_experts(flow, None)
        x = flow.join() if also is None else torch.cat([flow.join(), also], dim=-1)
        after, forwarded = self.layer.step(x, state)
        return self.connect(flow, after[0], forwarded, None), after

    def pass_experts(self, flow: Flow, seeds: Int[Tensor, " symbols"] | None) -> tuple[Flow, Choice | None]:
        """What comes from below, behind the mixture of experts where there is one; a connection's part goes by it."""
        if self.between is None:
            return flow, None
        hidden, choice = self.between(flow.hidden, seeds)
        return Flow(hidden, flow.forwarded), choice

    def routing(self, choice: Choice | None, layout: RaggedLayout) -> Routing | None:
        """Where the mixture below it sent a ragged batch's symbols; None where there is none."""
        if self.between is None or choice is None:
            return None
        return self.between.mixture.routing(choice, layout)

    def connect(
        self,
        flow: Flow,
        hidden: Float[Tensor, "*positions outputs"],
        forwarded: Float[Tensor, "*positions handed_on"] | None,
        seeds: Int[Tensor, "*positions"] | None,
    ) -> Flow:
        """What goes on upwards, from what came from below, the cells' states and what they hand on."""
        hidden = self.dropout(hidden, seeds)
        return Flow(flow.hidden + hidden if self.residual else hidden, forwarded)

    @property
    def layer(self) -> RecurrentLayer:
        """The cells of a layer that reads in one direction."""
        (layer,) = self._layers
        return layer

    @property
    def _layers(self) -> Iterator[RecurrentLayer]:
        return cast(Iterator[RecurrentLayer], iter(self.directions))  # nn.ModuleList is not generic


def _join(parts: Sequence[Tensor]) -> Tensor:
    """Of one direction, or of several."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=-1)
