"""The memory of ``transduce translate`` over an input of many lines."""

import random
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, final

from benchmarks.resident import resident_bytes

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 1.0)


@final
@dataclass(frozen=True)
class Course:
    """Samples of (lines done, bytes of the resident set), in the order of time."""

    lines: int
    seconds: float
    samples: list[tuple[int, int]]

    def at(self, share: float) -> int:
        """The bytes of the sample nearest to where this share of the lines was done."""
        return min(self.samples, key=lambda sample: abs(sample[0] - share * self.lines))[1]

    def middle(self, first: float, last: float) -> float:
        """The median of the samples between two shares of the lines, or of the nearest to the second."""
        found = [held for done, held in self.samples if first * self.lines < done <= last * self.lines]
        return statistics.median(found or [self.at(last)])

    @property
    def growth(self) -> float:
        """How much the last quarter of the lines holds beyond the second, as a share of the second's."""
        return self.middle(0.75, 1.0) / self.middle(0.25, 0.5) - 1


def follow(model: Path, texts: Sequence[str], lines: int, every: float) -> Course:
    """Feed so many lines through the command, and look at its memory every so many seconds.

    Raises:
        RuntimeError: The command failed, or wrote another number of lines.
    """
    command = [sys.executable, "-m", "transduce", "translate", str(model), "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        feeder = threading.Thread(target=_feed, args=(child.stdin, texts, lines), daemon=True)
        watch = _Watch(child.pid, every)
        feeder.start()
        watch.start()
        for _ in child.stdout:
            watch.done += 1
        seconds = watch.stop()
        feeder.join()
    if child.returncode or watch.done != lines:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}, {watch.done:,} lines of {lines:,}")
    return Course(lines, seconds, watch.samples)


def _feed(stream: BinaryIO, texts: Sequence[str], lines: int) -> None:
    """All texts again and again, in a new order each time."""
    try:
        with stream:
            for text in _shuffled(texts, lines):
                stream.write(text.encode() + b"\n")
    except BrokenPipeError:
        pass  # the child's status says more


def _shuffled(texts: Sequence[str], lines: int) -> Iterator[str]:
    chance, order = random.Random(1), list(texts)
    while lines > 0:
        chance.shuffle(order)
        yield from order[:lines]
        lines -= len(order)


@final
class _Watch(threading.Thread):
    """Samples of a process's memory beside the number of lines that whoever owns this has counted in ``done``."""

    def __init__(self, process: int, every: float) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self.samples: list[tuple[int, int]] = []
        self._process, self._every, self._ended = process, every, threading.Event()
        self._seconds = 0.0

    def run(self) -> None:
        """Look until the process ends or nobody wants to know."""
        while not self._ended.wait(self._every):
            self._seconds += self._every
            try:
                held = resident_bytes("VmRSS", str(self._process))
            except (OSError, ValueError):  # it has ended: its memory is gone already
                return
            self.samples.append((self.done, held))

    def stop(self) -> float:
        """End it, and return the seconds for which it has looked."""
        self._ended.set()
        self.join()
        return self._seconds
