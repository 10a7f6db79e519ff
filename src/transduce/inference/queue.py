"""Sentences that wait for a search to have room for them."""

from collections.abc import Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Final, final

# Of its room, as much has to be free before a search takes more: to read a few sources costs almost as much as many.
_FREE: Final = 0.5


@final
class Queue:
    """The sentences' numbers, longest source first, so that what is too large for memory shows at once.

    Each search has a lane of its own, all alike; whose lane is empty takes from the longest. A search holds sentences
    whose number times longest source is at most ``room``, or one sentence. As a context, around each search: one that
    fails leaves nothing to the others but what they have.
    """

    def __init__(self, lengths: Mapping[int, int], room: int, searches: int) -> None:
        order = sorted(lengths, key=lambda number: -lengths[number])
        self._lanes = [order[search::searches] for search in range(searches)]
        self._lengths, self._room, self._lock = lengths, room, Lock()

    def take(self, search: int, held: Sequence[int]) -> list[int]:
        """Sentences for a search that has these; none where none wait, or where there is too little room yet."""
        with self._lock:
            lane = self._lanes[search] or max(self._lanes, key=len)
            if not lane:
                return []
            longest = max(self._lengths[number] for number in (*held, lane[0]))
            room = max(1, self._room // longest)
            free = room - len(held)
            if free < min(_FREE * room, len(lane)):
                return []
            # Of another's lane, half: it will come for the rest itself.
            taken = lane[: free if lane is self._lanes[search] else min(free, -(-len(lane) // 2))]
            del lane[: len(taken)]
            return taken

    def put_back(self, search: int, taken: Sequence[int]) -> None:
        """Sentences that a search has taken and could not begin: they wait again, before the others."""
        with self._lock:
            self._lanes[search][:0] = taken

    def __enter__(self) -> None:
        """Nothing has failed."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where something has failed, nothing waits any longer."""
        if kind is not None:
            with self._lock:
                for lane in self._lanes:
                    lane.clear()
