"""Recurrent layers over ragged batches: cells in one direction, all positions at once or one by one."""

from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

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
from transduce.layers.reading_order import Direction, ReadingOrder, Rows


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
