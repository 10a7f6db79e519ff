"""The order in which recurrent layers read the symbols of a ragged batch."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from transduce.kernels import RaggedLayout

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
