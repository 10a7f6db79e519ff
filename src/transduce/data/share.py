"""Which pairs of a step each of several processes learns from."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.data.plan import Rows

# Tokens of each of some pairs, both sides together.
Sizes = Callable[[Rows], NDArray[np.int64]]


@final
@dataclass(frozen=True)
class Share:
    """What one of ``number`` processes takes of each step's ``accumulate`` batches of the plan.

    The step is the same for any number of processes. With g the greatest common divisor of the two numbers, there are
    g groups of processes: group i takes the batches i, i + g, i + 2g ... of the step, and its number / g members divide
    each of them among themselves. So all go through equally many batches, as large as can be.
    """

    rank: int = 0
    number: int = 1
    accumulate: int = 1

    @property
    def groups(self) -> int:
        """How many groups of processes there are: g."""
        return math.gcd(self.number, self.accumulate)

    @property
    def parts(self) -> int:
        """How many processes divide a batch."""
        return self.number // self.groups

    def takes(self, turn: int) -> bool:
        """Whether this process takes a part of the step's batch with that number, counted from 0."""
        return turn % self.groups == self.rank % self.groups

    def part(self, rows: Rows, sizes: Sizes) -> Rows:
        """This process's part of a batch that it takes; where there are fewer pairs than processes, perhaps none."""
        return divide(rows, sizes(rows), self.parts)[self.rank // self.groups] if self.parts > 1 else rows

    def check(self, plan: Sequence[Rows]) -> None:
        """See that there is something to divide.

        Raises:
            BadInputError: The batches have fewer pairs than processes divide each of them.
        """
        pairs = sum(map(len, plan)) / max(1, len(plan))
        if plan and self.parts > 1 and pairs < self.parts:
            raise BadInputError(
                f"{self.number} processes cannot divide the steps: {self.parts} of them share a batch, and those of "
                f"this plan have {pairs:.1f} pairs in the mean: raise train.batch_tokens, set train.accumulate to a "
                f"multiple of {self.number}, or start fewer processes"
            )


def divide(rows: Rows, tokens: NDArray[np.int64], parts: int) -> list[Rows]:
    """The pairs of a batch in ``parts`` parts of about as many tokens each, pairs of like length together.

    ``tokens`` has each pair's symbols of both sides. Cut where the running sum passes a multiple of its last value over
    ``parts``: no part differs from the mean by more than its longest pair.
    """
    order = np.argsort(tokens, kind="stable")
    ends = np.cumsum(tokens[order], dtype=np.int64)
    middles = 2 * ends - tokens[order]
    part = middles * parts // (2 * max(1, int(ends[-1]) if len(ends) else 1))
    return [rows[order[part == index]] for index in range(parts)]


def deal(plan: Iterable[Rows], share: Share, sizes: Sizes, turn: int) -> Iterator[Rows]:
    """This process's parts of those batches that it takes; the first batch has number ``turn`` in its step."""
    for number, rows in enumerate(plan, start=turn):
        if share.takes(number % share.accumulate):
            yield share.part(rows, sizes)
