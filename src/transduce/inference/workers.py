"""Threads that search at the same time, each in batches of its own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final, TypeVar, final

import torch

T = TypeVar("T")
R = TypeVar("R")

# Fewer sentences in a batch would read the weights for too few rows.
_SMALLEST: Final = 8


@final
class Workers:
    """So many threads; each leaves its operations to one core, so that no operation waits for another core's part.

    With one of them, or for one batch, the caller works itself.
    """

    def __init__(self, number: int | None = None) -> None:
        self._number = number

    @property
    def number(self) -> int:
        """As many as were asked for, or as torch has threads."""
        return torch.get_num_threads() if self._number is None else self._number

    def share(self, sentences: int) -> int:
        """How many of the workers should share so many sentences."""
        return max(1, min(self.number, sentences // _SMALLEST))

    def map(self, work: Callable[[T], R], batches: Sequence[T]) -> Iterator[R]:
        """The results in the order of the batches. Where one fails, those that have not begun never do."""
        if self.number == 1 or len(batches) == 1:
            yield from map(work, batches)
            return
        threads = torch.get_num_threads()

        def work_alone(batch: T) -> R:
            torch.set_num_threads(1)
            return work(batch)

        waiting = [self._pool.submit(work_alone, batch) for batch in batches]
        try:
            for each in waiting:
                yield each.result()
        finally:
            for each in waiting:
                each.cancel()
            # torch takes a thread's number for what threads that are still to come should have.
            torch.set_num_threads(threads)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.number, thread_name_prefix="search")
