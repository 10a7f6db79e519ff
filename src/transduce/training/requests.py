"""What others ask of a training while it runs: to write a checkpoint, or to write one and stop."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, final

from transduce.training.processes import ALONE, Processes

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Abandoned(BaseException):
    """Raised in what is not worth finishing when a training is to stop; no handler of errors should keep it."""


@final
@dataclass(frozen=True)
class Asked:
    """What all processes of a training are to do after a step."""

    checkpoint: bool
    stop: bool

    @property
    def any(self) -> bool:
        """Whether a checkpoint is to be written; a stop asks for one too."""
        return self.checkpoint or self.stop


@final
class Requests:
    """Looked at after every step. What is between steps, such as translating dev, is abandoned for a stop."""

    def __init__(self, stop_after: int | None = None) -> None:
        """``stop_after`` is a step."""
        self.stopped_by: signal.Signals | None = None
        self._stop_after = stop_after
        self._checkpoint = self._end = False
        self.in_step = False

    def take(self, step: int, processes: Processes = ALONE) -> Asked:
        """What was asked of any of the processes by now, after this step; all of them must call it.

        A signal may reach one of them only, or each at another step: they do what they agree on here.
        """
        checkpoint, self._checkpoint = self._checkpoint, False
        checkpoints, ends, *stops = processes.sum(
            [checkpoint, self._end, *(self.stopped_by is each for each in _STOPS)]
        )
        stopped_by = next((each for each, asked in zip(_STOPS, stops, strict=True) if asked), None)
        self.stopped_by = self.stopped_by or stopped_by
        over = self._stop_after is not None and step >= self._stop_after
        return Asked(checkpoints > 0, stopped_by is not None or over or ends > 0)

    def ask_checkpoint(self) -> None:
        """Have one written after this step."""
        self._checkpoint = True

    def ask_end(self) -> None:
        """Have the training interrupted after this step, where the program itself wants no more of it."""
        self._end = True

    def ask_stop(self, by: signal.Signals) -> None:
        """Have the training end.

        Raises:
            Abandoned: It is not within steps, which are finished first.
        """
        self.stopped_by = by
        if not self.in_step:
            raise Abandoned

    @contextmanager
    def within_steps(self, inside: bool = True) -> Iterator[None]:
        """Whether what is done in this context is finished before a stop."""
        before, self.in_step = self.in_step, inside
        try:
            if not inside and self.stopped_by is not None:
                raise Abandoned
            yield
        finally:
            self.in_step = before


@contextmanager
def listen(requests: Requests) -> Iterator[None]:
    """Take signals as requests: SIGTERM and SIGINT to stop, SIGUSR1 for a checkpoint.

    A second signal to stop ends the process as if nobody listened. Signals reach the main thread only; elsewhere, and
    where the process was started to ignore one, nothing changes.
    """

    def stop(number: int, _: FrameType | None) -> None:
        for each in _STOPS:
            signal.signal(each, signal.SIG_DFL)
        finishing = " after this step, with a checkpoint; a second signal stops at once" if requests.in_step else ""
        _say(f"{signal.Signals(number).name}: stopping{finishing}")
        requests.ask_stop(signal.Signals(number))

    def checkpoint(_number: int, _frame: FrameType | None) -> None:
        requests.ask_checkpoint()

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(_STOPS, stop)
    if hasattr(signal, "SIGUSR1"):  # Windows has none
        handlers[signal.SIGUSR1] = checkpoint
    with ExitStack() as after:
        for number, handler in handlers.items() if threading.current_thread() is threading.main_thread() else ():
            if (before := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                after.callback(signal.signal, number, before)
                signal.signal(number, handler)
        yield


def _say(message: str) -> None:
    """Past the log and Python's streams, which the signal may have come in the middle of.

    On a terminal there may be a progress bar, or the ^C of who pressed it, in the line.
    """
    with suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stderr.fileno()
        begin = "\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{begin}{message}\n".encode())
