"""What outputs have to look like, said over ids: search asks, and does not know what a constraint is.

A phrase that must occur, a prefix, a grammar: whatever can say which symbols may come next can be one. A constraint
begins in each sentence with a state; every hypothesis has one, which says what may not come next (``restrict``) and
becomes another with each symbol (``advance``). ``propose`` is for what would be written too late or never if only
probability chose.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


@final
@dataclass(frozen=True)
class Restriction:
    """What may come next: nothing but ``symbols`` where ``only``, else anything but them.

    A state that always says the same gives the same object each time, whose arrays are then made once.
    """

    symbols: Collection[int]
    only: bool = False

    @cached_property
    def ids(self) -> Int64[np.ndarray, " symbols"]:
        """The symbols in ascending order: NumPy joins a round's short lists much sooner than torch."""
        return np.array(sorted({*self.symbols}), np.int64)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest of them; (0, -1) where there are none."""
        return (int(self.ids[0]), int(self.ids[-1])) if len(self.ids) else (0, -1)

    @cached_property
    def index(self) -> Int64[Tensor, " symbols"]:
        """The same as a tensor, on the CPU."""
        return torch.from_numpy(self.ids)


@final
@dataclass(frozen=True)
class Proposals:
    """Symbols that a hypothesis should be continued with besides the most probable ones, and how far they bring it.

    ``banks`` counts what is fulfilled once a symbol is written, ``otherwise`` once any other symbol is. A search keeps
    hypotheses of every bank alive (dynamic beam allocation, Post and Vilar 2018).
    """

    banks: Mapping[int, int]
    otherwise: int


# typing.Self would say the same, but the run-time checkers of the tests cannot read it.
Same = TypeVar("Same", bound="ConstraintState")


@runtime_checkable
class ConstraintState(Protocol):
    """How a hypothesis stands with a constraint. It never changes: hypotheses with the same beginning share it."""

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        """What may come next, or None where anything may.

        ``written`` are the hypothesis's symbols, begin symbol left out; ``room`` is how many fit yet, end symbol
        counted.
        """
        ...

    def propose(self) -> Proposals | None:
        """What should be considered besides the most probable symbols, or None for nothing."""
        ...

    def advance(self: Same, symbol: int) -> Same:
        """The hypothesis has written a symbol."""
        ...


@runtime_checkable
class Constraint(Protocol):
    """Something that outputs have to fulfil."""

    def symbols(self, number: int) -> Collection[int]:
        """What the sentence of that number may have to write: always allowed, where there is a shortlist."""
        ...

    def start(self, number: int) -> ConstraintState | None:
        """The state of an empty output of the sentence that its caller knows by this number; None where it is free."""
        ...


@runtime_checkable
class Bounding(Constraint, Protocol):
    """A constraint whose states themselves name the few symbols that may come next, or leave all: a list for C++.

    ``restrict`` looks at nothing that is ``written`` and never gives anything but ``only``; ``propose`` gives nothing.
    """

    bounds: ClassVar[Literal[True]]
