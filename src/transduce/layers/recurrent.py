"""Recurrent layers over ragged batches: cells, directions, and what connects the layers of a stack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from transduce.config import RecurrentConfig
from transduce.config.recurrent import Cell
from transduce.kernels import (
    Format,
    PrepackedMatrix,
    RaggedLayout,
    Sources,
    attending_lstm,
    conditional_lstm,
    has_lstm,
    linear,
    linear_maps,
    lstm,
    prepack,
)
from transduce.layers.cells import CellState, LoopProduct, advance_cell
from transduce.layers.dropout import Dropout
from transduce.layers.feed_forward import FeedForwardShape, mixture_of_experts
from transduce.layers.mixture_of_experts import Choice, Routing

Rows = Float[Tensor, "tokens _"]  # of any width
Direction = Literal["left", "right"]  # where reading begins


@final
@dataclass(frozen=True)
class ReadingOrder:
    """A ragged batch in the order in which cells read it: of all rows the first symbols, then of all the second ones.

    The longest row is the first (``rows[i]`` is the batch's index of row i), so that those that go on at a step are
    the first ``going[step]``. Padding is read nowhere, from whichever side.
    """

    layout: RaggedLayout

    @cached_property
    def rows(self) -> Int[Tensor, " batch"]:
        """The rows, from the longest to the shortest."""
        return torch.argsort(self.layout.lengths, descending=True, stable=True)

    @cached_property
    def going(self) -> Int[Tensor, " steps"]:
        """How many rows have a symbol at each step."""
        lengths = self.layout.lengths
        steps = torch.arange(int(lengths.max()))
        return (lengths.unsqueeze(1) > steps).sum(dim=0)

    def tokens(self, begin: Direction) -> Int[Tensor, " tokens"]:
        """The symbols' places in the layout, in the order in which they are read."""
        lengths, begins = (each[self.rows].numpy() for each in (self.layout.lengths, self.layout.offsets[:-1]))
        steps = np.arange(lengths.max())[:, np.newaxis]
        places = begins + (steps if begin == "left" else lengths - 1 - steps)
        return self._send(torch.from_numpy(places[steps < lengths]))

    def read(self, x: Rows, begin: Direction) -> PackedSequence:
        """The symbols in their order."""
        return PackedSequence(x.index_select(0, self._order(begin)[0]), self.going)

    def lay_back(self, read: PackedSequence, begin: Direction) -> Rows:
        """What was made of each symbol, in the layout's order."""
        return read.data.index_select(0, self._order(begin)[1])

    def ends(self, begin: Direction) -> Int[Tensor, " batch"]:
        """The place of the symbol that is read last, of every row."""
        offsets = self.layout.offsets
        return self._send(offsets[1:] - 1 if begin == "left" else offsets[:-1])

    def sort_rows(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        """The rows of a batch in the order of reading."""
        return x.index_select(0, self._send(self.rows))

    def restore_rows(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        """And in the batch's own."""
        return x.index_select(0, self._send(torch.argsort(self.rows)))

    def _order(self, begin: Direction) -> tuple[Tensor, Tensor]:
        return self._from_left if begin == "left" else self._from_right

    @cached_property
    def _from_left(self) -> tuple[Tensor, Tensor]:
        return (places := self.tokens("left")), torch.argsort(places)

    @cached_property
    def _from_right(self) -> tuple[Tensor, Tensor]:
        return (places := self.tokens("right")), torch.argsort(places)

    def _send(self, places: Tensor) -> Tensor:
        return places.to(self.layout.indices.device)


class CellWeights(NamedTuple):
    """A layer's matrices and biases, those of its gates in PyTorch's order, one below the other."""

    of_input: Float[Tensor, "gates inputs"]
    of_state: Float[Tensor, "gates hidden"]
    input_bias: Float[Tensor, " gates"]
    state_bias: Float[Tensor, " gates"]


@final
class RecurrentLayer(nn.Module):
    """Cells in one direction: PyTorch's LSTM or GRU, with their weights and formulas.

    LSTM: i, f, o = sigmoid(W x + U h + b), g = tanh(W x + U h + b), c' = f c + i g, h' = o tanh(c').
    GRU: r, z = sigmoid(W x + U h + b), n = tanh(W x + b + r (U h + b')), h' = (1 - z) n + z h.

    A gate's matrices begin uniform up to sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010), its biases at zero, but
    for the LSTM's forget gate, which begins open with a bias of 1 (Gers et al. 2000).

    Beside its states it gives the last ``handed_on`` numbers of what gates add up of its input (W x and biases), which
    fast-forward connections hand on; None where these are none.
    """

    def __init__(self, cell: Cell, inputs: int, hidden: int, begin: Direction = "left", *, handed_on: int = 0) -> None:
        super().__init__()
        self.cell, self.begin, self.handed_on = cell, begin, handed_on
        # Where a low-precision format was asked for: an LSTM's [W U], or W and U, each with its biases.
        self.prepacked: tuple[PrepackedMatrix, ...] = ()
        self.cells = (nn.LSTM if cell == "lstm" else nn.GRU)(inputs, hidden)
        weights = self.weights()
        for matrix in (weights.of_input, weights.of_state):
            for gate in matrix.chunk(4 if cell == "lstm" else 3):
                nn.init.xavier_uniform_(gate)
        for bias in (weights.input_bias, weights.state_bias):
            nn.init.zeros_(bias)
        if cell == "lstm":
            nn.init.ones_(weights.input_bias.chunk(4)[1])

    def forward(
        self, x: Rows, order: ReadingOrder, start: CellState | None = None
    ) -> tuple[Rows, Float[Tensor, "batch hidden"], Rows | None]:
        """The states behind every symbol, the last one of every row, and what is handed on.

        A row starts from zeros where not told.
        """
        if self.in_kernels(x):
            begun, weight = None if start is None else (start[0], start[1]), self.weights().of_state
            gates = self.known(x)
            states = lstm(gates, weight, order.layout, begun, backwards=self.begin == "right")
            return states, states.index_select(0, order.ends(self.begin)), self.hand_on(gates)
        begins = None if start is None else [order.sort_rows(each).unsqueeze(0) for each in start]
        given = None if begins is None else begins[0] if self.cell == "gru" else tuple(begins)
        states, last = self.cells(order.read(x, self.begin), given)
        last = last if self.cell == "gru" else last[0]
        return order.lay_back(states, self.begin), order.restore_rows(last.squeeze(0)), self._hand_on_of(x)

    def in_kernels(self, x: Rows) -> bool:
        """Whether the C++ kernels compute all symbols at once."""
        return self.cell == "lstm" and has_lstm(x, *self.weights())

    def attend(
        self,
        known: Rows,
        asking: Float[Tensor, "units hidden"],
        sources: Sources,
        layout: RaggedLayout,
        start: CellState,
        second: "RecurrentLayer | None" = None,
    ) -> tuple[Rows, Rows, Rows, Rows | None]:
        """States, contexts, attention's weights and what is handed on, of cells that read [x; c] (``attending_lstm``).

        With a second cell in each step, that reads the context (``conditional_lstm``).
        """
        (of_input, of_state, *_), gates, begun = self.weights(), self.known(known), (start[0], start[1])
        if second is not None:
            others = second.weights()
            joined = torch.cat([others.of_input, others.of_state], dim=1)
            own = gates, of_state, second.biases()[0], joined
            return *conditional_lstm(*own, asking, sources, layout, begun), self.hand_on(gates)
        of_context = of_input[:, known.shape[-1] :]
        joined = torch.cat([of_context, of_state], dim=1)
        states, contexts, found = attending_lstm(gates, joined, asking, sources, layout, begun)
        forwarded = self.hand_on(gates)
        if forwarded is not None:
            forwarded = forwarded + linear_maps(contexts, [of_context[-self.handed_on :].contiguous()], [None])
        return states, contexts, found, forwarded

    def known(self, x: Rows) -> Float[Tensor, "tokens gates"]:
        """What an LSTM's gates are made of beside the state: W x + b + b', x being all inputs or the first ones."""
        of_input = self.weights().of_input[:, : x.shape[-1]].contiguous()
        return linear_maps(x, [of_input], [self.biases()[0]])

    def step(
        self, x: Float[Tensor, "rows inputs"], state: CellState
    ) -> tuple[CellState, Float[Tensor, "rows handed_on"] | None]:
        """One more symbol of every row, and what is handed on."""
        match self.prepacked:
            case (joined,):
                return advance_cell(self.cell, linear(torch.cat([x, state[0]], dim=-1), joined), None, state), None
            case (of_input, of_state):
                gates, from_state = linear(x, of_input), linear(state[0], of_state)
            case _:
                weights, (bias, state_bias) = self.weights(), self.biases()
                gates = F.linear(x, weights.of_input, bias)
                from_state = F.linear(state[0], weights.of_state, state_bias)
        return advance_cell(self.cell, gates, from_state, state), self.hand_on(gates)

    @torch.no_grad()
    def prepack(self, format_: Format) -> None:
        """Multiply in a number format where symbols are read one by one; never train it again."""
        (of_input, of_state, *_), (bias, state_bias) = self.weights(), self.biases()
        if self.joins:
            self.prepacked = (prepack(torch.cat([of_input, of_state], dim=1), bias, format_),)
        else:
            self.prepacked = prepack(of_input, bias, format_), prepack(of_state, state_bias, format_)

    @property
    def joins(self) -> bool:
        """Whether one product [W U] [x; h] makes a step's gates: nobody asks what either adds."""
        return self.cell == "lstm" and not self.handed_on

    def hand_on(self, gates: Float[Tensor, "*positions gates"]) -> Float[Tensor, "*positions handed_on"] | None:
        """Of what gates add up of the input."""
        return gates[..., -self.handed_on :] if self.handed_on else None

    def _hand_on_of(self, x: Rows) -> Rows | None:
        """Of inputs, where PyTorch's layer does not tell what it made of them."""
        if not self.handed_on:
            return None
        return F.linear(x, self.weights().of_input[-self.handed_on :], self.biases()[0][-self.handed_on :])

    def weights(self) -> CellWeights:
        """W, U, b and b' of all gates."""
        cells = self.cells
        return CellWeights(*(getattr(cells, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))

    def biases(self) -> tuple[Float[Tensor, " gates"], Float[Tensor, " gates"] | None]:
        """What is added to W x and to U h: an LSTM adds up both biases, a GRU has use for them apart."""
        _, _, bias, state_bias = self.weights()
        return (bias + state_bias, None) if self.cell == "lstm" else (bias, state_bias)


@final
class LoopLayer:
    """A layer in a loop over positions: what it reads is known, of all positions, but for a part that each step finds.

    What is known is multiplied before the loop, at once.
    """

    def __init__(self, layer: RecurrentLayer, known: Rows | None, layout: RaggedLayout) -> None:
        self.layer = layer
        width = 0 if known is None else known.shape[-1]
        (matrix, recurrent, *_), (bias, state_bias) = layer.weights(), layer.biases()
        if layer.joins:
            matrix = torch.cat([matrix, recurrent], dim=1)
        self.of_known = None
        if known is not None:
            self.of_known = layout.pad(F.linear(known, matrix[:, :width], bias)).unbind(1)
        size = {"steps": layout.longest, "rows": len(layout.lengths)}
        self.of_found = LoopProduct(matrix[:, width:], bias if known is None else None, **size)
        self.of_state = None if layer.joins else LoopProduct(recurrent, state_bias, **size)

    def step(
        self, column: int, found: Float[Tensor, "rows width"], state: CellState
    ) -> tuple[CellState, Float[Tensor, "rows handed_on"] | None]:
        """The states behind one position of every row, and what is handed on."""
        x = found if self.of_state is not None else torch.cat([found, state[0]], dim=-1)
        gates = self.of_found(x)
        if self.of_known is not None:
            gates = self.of_known[column] + gates
        from_state = None if self.of_state is None else self.of_state(state[0])
        return advance_cell(self.layer.cell, gates, from_state, state), self.layer.hand_on(gates)


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
