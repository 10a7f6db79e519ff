"""What ends a process that hangs, or waits for one that does."""

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, final

_log = logging.getLogger(__name__)

# The interpreter itself may hang: then its own watchdog, which needs none of it, comes so much later.
_SLACK: Final = 1.2


@final
class Watch:
    """Ends the process with the stack traces of all its threads when ``beat`` is not called for so many seconds.

    Used as a context: within, but not while it rests.
    """

    def __init__(self, seconds: float | None, who: str, end: Callable[[int], None] = os._exit) -> None:
        """``seconds`` None never ends it; ``end`` is given the exit status."""
        self._seconds, self._who, self._end = seconds, who, end
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    def beat(self, what: str) -> None:
        """Begin ``what``, which may take so many seconds."""
        self.rest()
        if self._seconds is None:
            return
        self._timer = threading.Timer(self._seconds, self._expire, [what])
        self._timer.daemon = True
        self._timer.start()
        faulthandler.dump_traceback_later(_SLACK * self._seconds, exit=True)

    def rest(self) -> None:
        """What comes now may take as long as it will."""
        if self._timer is not None:
            self._timer.cancel()
            faulthandler.cancel_dump_traceback_later()
            self._timer = None

    def _expire(self, what: str) -> None:
        _log.error(
            f"{self._who}: {what} takes longer than {self._seconds:g} s (train.hang_minutes): it hangs here, or waits "
            f"for a process that does. Where its threads stand:"
        )
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        self._end(1)
