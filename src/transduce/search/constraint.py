"""What outputs have to look like, said over ids: search asks, and is blind to what a constraint is.

A phrase that must occur, a prefix, a grammar: whatever can say which symbols may come next can be one. The verbs are
``start``, ``mask``, ``advance``, ``reorder`` and ``admit``; ``propose`` is for what would be written too late or never
if only probability chose.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@final
@dataclass(frozen=True)
class Proposals:
    """Symbols that should be considered in each row besides the most probable ones, and how far they would bring it.

    ``bank`` counts what is fulfilled once the symbol is written, ``otherwise`` once any other symbol is. Rows with
    fewer proposals than others repeat one. A search keeps hypotheses of every bank alive.
    """

    symbol: Int[Tensor, "rows proposals"]
    bank: Int[Tensor, "rows proposals"]
    otherwise: Int[Tensor, " rows"]


# typing.Self would say the same, but the run-time checkers of the tests cannot read it.
Same = TypeVar("Same", bound="ConstraintState")


@runtime_checkable
class ConstraintState(Protocol):
    """A constraint under way: what it remembers of every row. A sentence's rows stand together.

    Every verb uses it up: only the one that it returns may be used again.
    """

    def mask(
        self,
        scores: Float[Tensor, "rows vocabulary"],
        written: Int[Tensor, "rows time"],
        room: Int[Tensor, " rows"],
    ) -> None:
        """Set to minus infinity, in place, what may not come next.

        ``written`` is what stands so far, begin symbol left out. Sentences may have written differently much: every
        row's newest symbol stands in the last column, and before the first one stands -1. ``room`` is how many symbols
        fit yet, end symbol counted.
        """
        ...

    def propose(self) -> Proposals | None:
        """What should be considered besides the most probable symbols; None where nothing ever is."""
        ...

    def advance(self: Same, symbols: Int[Tensor, " rows"]) -> Same:
        """Every row has written a symbol."""
        ...

    def reorder(self: Same, rows: Int[Tensor, " kept"]) -> Same:
        """Row i goes on from row ``rows[i]``; where sentences have left, there are fewer rows than before."""
        ...

    def admit(self: Same, other: Same) -> Same:
        """The rows of another beginning of the same constraint come in behind these."""
        ...


@runtime_checkable
class Constraint(Protocol):
    """Something that outputs have to fulfil."""

    def symbols(self, number: int) -> Collection[int]:
        """What the sentence of that number may have to write: such symbols are in its list, where there are lists."""
        ...

    def start(self, numbers: Sequence[int], beam: int, device: torch.device) -> ConstraintState:
        """The beginning, ``beam`` rows for each of the sentences that the caller knows by these numbers."""
        ...
