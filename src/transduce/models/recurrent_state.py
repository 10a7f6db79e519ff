"""What a recurrent decoder remembers between steps."""

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.kernels import AllowedTokens, join_allowed
from transduce.layers.cells import CellState
from transduce.layers.recurrent_attention import Alignment, Attended


@final
@dataclass(frozen=True)
class RecurrentState:
    """The cells' states of every layer, row by row, and each sentence's source once, whatever the beam.

    Nothing of it grows with an output, so rows that have read different numbers of symbols are alike. ``summary`` is
    the source where there is no attention, ``attended`` where there is one, with the ``alignment`` of the step before;
    ``fed`` is the attentional state that input feeding hands on.
    """

    cells: tuple[CellState, ...]
    beam: int
    summary: Float[Tensor, "sentences context"] | None = None
    attended: Attended | None = None
    alignment: Alignment | None = None
    fed: Float[Tensor, "rows readout"] | None = None
    allowed: AllowedTokens | None = None

    def reorder(self, rows: Int[Tensor, " rows"]) -> "RecurrentState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return replace(
            self,
            cells=tuple(tuple(part[rows] for part in cell) for cell in self.cells),
            alignment=None if self.alignment is None else self.alignment.select(rows),
            fed=None if self.fed is None else self.fed[rows],
        )

    def release(self, finished: Bool[Tensor, " sentences"]) -> "RecurrentState":
        """Remove the finished sentences with all their rows; the others keep their order."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam, device=staying.device)).flatten()
        return replace(
            self.reorder(rows),
            summary=None if self.summary is None else self.summary[staying],
            attended=None if self.attended is None else self.attended.select(staying),
            allowed=None if self.allowed is None else self.allowed.keep(staying),
        )

    def admit(self, other: "RecurrentState") -> "RecurrentState":
        """Append the sentences of another state of the same beam; they may have read different numbers of symbols."""
        assert self.beam == other.beam
        pairs = zip(self.cells, other.cells, strict=True)
        return replace(
            self,
            cells=tuple(tuple(torch.cat(parts) for parts in zip(*cells, strict=True)) for cells in pairs),
            summary=_join(self.summary, other.summary),
            attended=(None if self.attended is None or other.attended is None else self.attended.join(other.attended)),
            alignment=(
                None if self.alignment is None or other.alignment is None else self.alignment.join(other.alignment)
            ),
            fed=_join(self.fed, other.fed),
            allowed=join_allowed(self.allowed, other.allowed),
        )


def _join(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return None if one is None or other is None else torch.cat([one, other])
