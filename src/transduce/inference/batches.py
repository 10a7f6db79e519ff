"""Rows in batches of similar cost, which are halved where memory is too small for one."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from transduce.kernels import is_out_of_memory, run_safely
from transduce.search import TooLittleMemory

T = TypeVar("T")


def each_within_memory(
    work: Callable[[list[int]], list[T]], batches: Iterator[list[int]]
) -> Iterator[tuple[int, T | TooLittleMemory]]:
    """What ``work`` makes of each row, batch by batch; a batch that memory is too small for goes in halves."""
    waiting = list(batches)[::-1]
    while waiting:
        rows = waiting.pop()
        try:
            yield from zip(rows, run_safely(partial(work, rows)), strict=True)
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error) or type(error).__name__
        # Only here have the failed work's tensors gone with its error.
        if len(rows) == 1:
            yield rows[0], TooLittleMemory(reason)
        else:
            half = len(rows) // 2
            waiting += [rows[half:], rows[:half]]


def in_batches(costs: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices in batches of similar cost, the highest first, so that a batch too large for memory shows at once.

    With the first one's cost for each, a batch costs ``most``, or has one alone.
    """
    order = sorted(range(len(costs)), key=lambda index: -costs[index])
    start = 0
    while start < len(order):
        size = max(1, most // costs[order[start]])
        yield order[start : start + size]
        start += size
