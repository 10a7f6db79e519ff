"""Requests that wait for searches with room for them."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from threading import Condition
from types import TracebackType
from typing import Final, final

from transduce.search import Request

# Of its room, as much has to be free before a search takes more: to read a few sources costs almost as much as many.
_FREE: Final = 0.5


@final
class RequestQueue:
    """Hands requests to several searches; any thread may put some in at any time, until it is closed.

    Requests that are put in together come longest source first, so that what is too large for memory shows at once, and
    are dealt to the searches in turn; a search that has none left takes from the one that has most. A search holds
    requests whose rows (of their beams) times longest source are at most ``room``, or one request. One that has none at
    all waits for more, and ends once the queue is closed.

    As a context, around each search: one that fails leaves nothing to the others but what they have, and closes the
    queue.
    """

    def __init__(self, room: int, searches: int = 1) -> None:
        self._lanes: list[deque[Request]] = [deque() for _ in range(searches)]
        self._room, self._closed, self._changed = room, False, Condition()
        self._idle: set[int] = set()  # searches that have no requests

    @property
    def searches(self) -> int:
        """How many searches it serves."""
        return len(self._lanes)

    @property
    def at_work(self) -> int:
        """How many of them have requests, or have not asked for any yet."""
        return len(self._lanes) - len(self._idle)

    def put(self, requests: Iterable[Request]) -> None:
        """Add requests behind those that wait.

        Raises:
            RuntimeError: The queue is closed.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError("the queue of requests is closed: its searches end")
            lanes = sorted(self._lanes, key=len)
            for index, request in enumerate(sorted(requests, key=lambda each: -len(each.source))):
                lanes[index % len(lanes)].append(request)
            self._changed.notify_all()

    def close(self) -> None:
        """Let the searches end once what waits is done; nothing more can be put in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, search: int, active: Sequence[Request]) -> list[Request]:
        """Requests for a search that has these active ones; none where none wait, or there is too little room yet.

        Without active ones, it waits until there are some, or gives none because the queue is closed.
        """
        with self._changed:
            own = self._lanes[search]
            while not (lane := own or max(self._lanes, key=len)):
                if active:
                    return []
                self._idle.add(search)
                if self._closed:
                    return []
                self._changed.wait()
                self._idle.discard(search)
            beam, longest = lane[0].settings.beam_size, max(len(each.source) for each in (lane[0], *active))
            rows = sum(each.settings.beam_size for each in active)
            most = self._room // longest
            if active and (most - rows) // beam < min(_FREE * max(1, most // beam), len(lane)):
                return []
            taken: list[Request] = []
            # Of another's requests, half: it will come for the rest itself.
            for request in islice(lane, len(lane) if lane is own else -(-len(lane) // 2)):
                rows, longest = rows + request.settings.beam_size, max(longest, len(request.source))
                if rows * longest > self._room and (taken or active):
                    break
                taken.append(request)
            for _ in taken:
                lane.popleft()
            return taken

    def __enter__(self) -> None:
        """Nothing has failed."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where something has failed, nothing waits any longer."""
        if kind is not None:
            with self._changed:
                for lane in self._lanes:
                    lane.clear()
            self.close()
