"""Who is let in: so much work at a time for a model, and so many requests a minute for a client."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

from transduce.serving.refusal import TooMany

# The speed is that of about the last so many seconds of work.
_MEMORY: Final = 20.0
# After so many seconds of work the speed counts, whatever is known of it.
_LEARNING: Final = 10.0
# Clients whose buckets are kept; those that were idle for longest are forgotten, and theirs are full anyway.
_MOST_CLIENTS: Final = 10_000


@final
class Admission:
    """A bounded queue in front of a model.

    What is under way counts in characters of source text. A request is let in while fewer than ``waiting`` requests are
    under way and what stands before it is less than ``wait`` seconds of work, at the speed of the last while; the first
    one always is.
    """

    def __init__(self, waiting: int, wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting, self._wait, self._clock = waiting, wait, clock
        self._requests, self._characters = 0, 0
        self._busy, self._done = 0.0, 0.0  # seconds with work, characters of it; the past counts less and less
        self._since = 0.0
        self._learning: int | None = None  # characters to be done before the speed is known, once a request has ended

    @property
    def requests(self) -> int:
        """Requests under way."""
        return self._requests

    @property
    def characters(self) -> int:
        """Their characters."""
        return self._characters

    def forget(self) -> None:
        """Know no speed any more: what has passed was no work, as while a model was being loaded."""
        self._busy, self._done, self._learning = 0.0, 0.0, None
        self._since = self._clock()

    @contextmanager
    def admit(self, characters: int) -> Iterator[None]:
        """Count a request as long as it is under way.

        Raises:
            TooMany: There is too much to do already; it says when to come again.
        """
        seconds = self._seconds()
        if self._requests and (self._requests >= self._waiting or seconds >= self._wait):
            raise TooMany(
                f"too much to do: {self._requests:,} requests are under way; come again later",
                max(1, math.ceil(seconds - self._wait / 2)),
            )
        self._advance()
        self._requests += 1
        self._characters += characters
        try:
            yield
        except BaseException:
            self._leave(characters)
            raise
        self._leave(characters)
        self._done += characters
        self._learning = self._characters if self._learning is None else max(0, self._learning - characters)

    def _leave(self, characters: int) -> None:
        self._advance()
        self._requests -= 1
        self._characters -= characters

    def _seconds(self) -> float:
        """How long the work under way takes; 0 before anything is known.

        When the first request ends, those that were worked on beside it are almost done too: one alone would make the
        speed far too low. So it counts once as much is done as then was under way, or after ten seconds of work.
        """
        if not self._done or (self._learning and self._busy < _LEARNING):
            return 0.0
        return self._characters * self._busy / self._done

    def _advance(self) -> None:
        """Count the time since the last change as busy, where there was work."""
        now = self._clock()
        passed = now - self._since
        self._since = now
        if self._requests:
            share = math.exp(-passed / _MEMORY)
            self._busy, self._done = self._busy * share + passed, self._done * share


@final
@dataclass
class _Bucket:
    """What a client has left, at a time."""

    left: float
    at: float


@final
class RateLimit:
    """So many requests a minute for each client, evenly after the first rush (a token bucket)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, client: str, rate: int | None) -> None:
        """Count a request of a client that may send ``rate`` a minute; ``None`` is no limit.

        Raises:
            TooMany: It has sent too many; it says when the next one may come.
        """
        if rate is None:
            return
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _Bucket(rate, now)
        bucket.left, bucket.at = min(rate, bucket.left + (now - bucket.at) * rate / 60), now
        self._buckets[client] = bucket  # behind all others
        if len(self._buckets) > _MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]
        if bucket.left < 1:
            raise TooMany(f"more than {rate:,} requests a minute", max(1, math.ceil((1 - bucket.left) * 60 / rate)))
        bucket.left -= 1
