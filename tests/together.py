"""Several processes of one test; test modules ask for them by ``pytest_plugins``.

They are started from a server that has imported torch once.
"""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.command import call


@dataclass
class Together:
    """What was started: each process by its rank, and the file of what it says."""

    processes: list[BaseProcess]
    logs: list[Path]

    def join(self, seconds: float = 60) -> list[int | None]:
        """Wait for all; the exit status of each."""
        for process in self.processes:
            process.join(seconds)
        statuses = [process.exitcode for process in self.processes]
        for process in self.processes:
            process.kill()
        return statuses

    def said(self, rank: int) -> str:
        return self.logs[rank].read_text()


def _start(number: int, folder: Path, work: Callable[..., None], *arguments: Any) -> Together:
    """Call ``work(*arguments)`` in each of ``number`` processes, in the environment that torchrun makes for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder.mkdir(parents=True, exist_ok=True)
    shared = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environments = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)]
    logs = [folder / f"{rank}.log" for rank in range(number)]
    processes = [
        call(_run, log, work, environment, arguments) for log, environment in zip(logs, environments, strict=True)
    ]
    return Together(processes, logs)


def _run_all(number: int, folder: Path, work: Callable[..., None], *arguments: Any) -> None:
    """The same, and see that all end well."""
    started = _start(number, folder, work, *arguments)
    statuses = started.join()
    assert statuses == [0] * number, "\n".join(map(started.said, range(number)))


def _run(log: Path, work: Callable[..., None], environment: dict[str, str], arguments: Sequence[Any]) -> None:
    descriptor = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]
    os.environ.update(environment)
    work(*arguments)


@pytest.fixture(scope="session")
def start_together() -> Callable[..., Together]:
    """Call it with the number of processes, a folder for what they say, a function and its arguments."""
    return _start


@pytest.fixture(scope="session")
def run_together() -> Callable[..., None]:
    """The same, but it waits, and sees that all end well."""
    return _run_all
