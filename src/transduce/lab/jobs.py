"""Trainings of a table several at a time, each in a process of its own (``worker`` is what runs in it)."""

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, final

from transduce.config import RunConfig

_WORKER: Final = "transduce.lab.worker"


@final
@dataclass(frozen=True)
class Job:
    """A training: what people know it by, what it is, and its run directory."""

    title: str
    config: RunConfig
    root: Path

    def to_line(self) -> str:
        """A line of JSON, for its process to read."""
        values = {"name": self.root.name, "root": str(self.root), "config": self.config.model_dump(mode="json")}
        return json.dumps(values) + "\n"


@final
@dataclass(frozen=True)
class Settings:
    """What all jobs have the same of: ``base``, the run directory whose preparation they share, and threads each.

    ``jobs`` are at work at a time, on the devices by turns, until the ``end`` by the monotonic clock, which all
    processes have the same of.
    """

    base: Path
    end: float
    jobs: int
    threads: int
    devices: tuple[str, ...]


@final
@dataclass(frozen=True)
class Outcome:
    """Whether a training is finished and measured; where it is not, why it failed, or None: its time was over."""

    finished: bool
    failure: str | None = None


def train_jobs(jobs: Sequence[Job], settings: Settings) -> Generator[tuple[Job, Outcome]]:
    """Train and measure them, begun in this order, and say of each what became of it, as they end.

    What fails does not end the others; its process is not used again. Behind the settings' end no job is begun. Where
    the iterator is closed early, those at work write a checkpoint after their step and end, and it waits for that.
    """
    waiting, free = deque(jobs), deque(range(settings.jobs))
    started: list[_Process] = []
    at_place: dict[int, _Process] = {}
    at_work: dict[Future[Outcome], tuple[Job, int]] = {}
    ended: list[tuple[Job, Outcome]] = []
    with ThreadPoolExecutor(settings.jobs, "job") as threads:
        try:
            while True:
                while waiting and free and time.monotonic() < settings.end:
                    job, place = waiting.popleft(), free.popleft()
                    if place not in at_place:
                        at_place[place] = _Process(settings, settings.devices[place % len(settings.devices)])
                        started.append(at_place[place])
                    at_work[threads.submit(at_place[place].train, job)] = job, place
                yield from ended  # once the next ones have begun: whoever listens may take a while
                if not at_work:
                    return
                ended = []
                for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                    job, place = at_work.pop(future)
                    ended.append((job, future.result()))
                    free.append(place)
                    if ended[-1][1].failure is not None:
                        at_place.pop(place).close()
        finally:
            for process in started:
                process.close()
            for process in started:
                process.wait()


@final
class _Process:
    """Trains what it is given, one after the other, until it is closed; if that is amid a training, it stops there."""

    def __init__(self, settings: Settings, device: str) -> None:
        given = {
            "base": str(settings.base),
            "end": settings.end,
            "jobs": settings.jobs,
            "threads": settings.threads,
            "device": device,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            # An interrupt from the keyboard is for whoever started it, which closes it then.
            process_group=0,
        )

    def train(self, job: Job) -> Outcome:
        """What became of it; this waits until it is over, one way or another."""
        answer = ""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).write(job.to_line())
            _pipe(self._process.stdin).flush()
            answer = _pipe(self._process.stdout).readline()
        if not answer:
            return Outcome(finished=False, failure=f"its process died (status {self._process.wait()})")
        values: dict[str, Any] = json.loads(answer)
        return Outcome(**values)

    def close(self) -> None:
        """End its input, which it takes as the sign to end."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
