"""Threads that search at the same time, each in batches of its own."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar, final

import torch

from transduce.kernels import run_safely, start_threads, use_cores

T = TypeVar("T")
R = TypeVar("R")

# Fewer sentences in a batch would read the weights for too few rows.
_SMALLEST: Final = 8


@final
@dataclass(frozen=True)
class _Pool:
    """So many threads, and the process that they live in: the child of a fork has none of them."""

    process: int
    number: int
    threads: ThreadPoolExecutor

    @classmethod
    def of(cls, number: int) -> "_Pool":
        return cls(os.getpid(), number, start_threads(number, "search"))

    def serves(self, number: int) -> bool:
        return self.process == os.getpid() and self.number >= number


@final
class CoreShare:
    """How many cores the C++ kernels may use for the thread that runs the block: they become more and fewer."""

    def __init__(self) -> None:
        self._number = 0

    def set(self, number: int) -> None:
        """So many from here on; 0: as torch has it."""
        if number != self._number:
            use_cores(number)
            self._number = number

    def __enter__(self) -> "CoreShare":
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)


@final
class Workers:
    """So many threads; each leaves its operations to one core, so that no operation waits for another core's part.

    With one of them, or for one batch, the caller works itself. They serve several callers at a time, and in the child
    of a fork they are made anew.
    """

    def __init__(self, number: int | None = None) -> None:
        self._number = number
        self._pool: _Pool | None = None

    @property
    def number(self) -> int:
        """As many as were asked for, or as torch has threads."""
        return torch.get_num_threads() if self._number is None else self._number

    def share(self, sentences: int) -> int:
        """How many of the workers should share so many sentences."""
        return max(1, min(self.number, sentences // _SMALLEST))

    def map(self, work: Callable[[T], R], batches: Sequence[T]) -> Iterator[R]:
        """The results in the order of the batches. Where one fails, those that have not begun never do."""
        number = self.number
        if number == 1 or len(batches) == 1:
            yield from (run_safely(partial(work, batch)) for batch in batches)
            return
        pool = self._pool
        if pool is None or not pool.serves(number):
            # Of two callers that come here at once, one's pool is forgotten once its work is done.
            pool = self._pool = _Pool.of(number)
        waiting = [pool.threads.submit(work, batch) for batch in batches]
        try:
            for each in waiting:
                yield each.result()
        finally:
            for each in waiting:
                each.cancel()
