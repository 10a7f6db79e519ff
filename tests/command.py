"""Commands and other programs in processes of their own, which begin with torch imported: a start takes no time."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, BinaryIO, Final

from tests.faults.faults import Faults

FORKSERVER: Final = "forkserver"  # there is one of them, and so what it has imported is for whoever else asks for it
_CONTEXT = multiprocessing.get_context(FORKSERVER)
_CONTEXT.set_forkserver_preload(["transduce.cli.main", "transduce.workflows.train", "torch._dynamo", "tests.forked"])


def call(function: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A function of a module, in such a process."""
    process = _CONTEXT.Process(target=function, args=arguments)
    process.start()
    return process


def start(arguments: list[str], said: Path, *fault: Any) -> BaseProcess:
    """``transduce ARGUMENTS``, with a fault (its folder, point and count); what it says is appended to ``said``."""
    return call(_run, arguments, None, said, said, fault)


def run(arguments: list[str], said: Path, *fault: Any) -> int:
    """The exit status, which is negative where a signal was the end."""
    process = start(arguments, said, *fault)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def complete(arguments: list[str], given: bytes, folder: Path) -> CompletedProcess[bytes]:
    """As ``subprocess.run``, with what a pipe gives as standard input; the folder is for what goes in and out."""
    pipe, *outputs = (folder / name for name in ("stdin", "stdout", "stderr"))
    for path in (pipe, *outputs):
        path.unlink(missing_ok=True)
    os.mkfifo(pipe)
    Thread(target=pipe.write_bytes, args=(given,), daemon=True).start()  # which waits for who reads it
    process = call(_run, arguments, pipe, *outputs, ())
    status = _wait(process, 60)
    return CompletedProcess(arguments, status, *(path.read_bytes() for path in outputs))


def converse(arguments: list[str], folder: Path) -> tuple[BaseProcess, BinaryIO, BinaryIO]:
    """The process, its standard input and its output, line by line; its errors are appended to the folder's stderr."""
    pipes = folder / "stdin", folder / "stdout"
    for pipe in pipes:
        os.mkfifo(pipe)
    process = call(_run, arguments, *pipes, folder / "stderr", ())
    # In the order in which it opens the other ends: each waits for the other.
    return process, pipes[0].open("wb", buffering=0), pipes[1].open("rb")


def run_program(program: str, *arguments: str, seconds: float = 300) -> CompletedProcess[str]:
    """As ``python -c PROGRAM ARGUMENTS``, which may take so many seconds."""
    with TemporaryDirectory() as folder:
        said, warned = (Path(folder, name) for name in ("stdout", "stderr"))
        process = call(_run_program, program, arguments, said, warned)
        status = _wait(process, seconds)
        return CompletedProcess(arguments, status, said.read_text(), warned.read_text())


def _wait(process: BaseProcess, seconds: float) -> int:
    """The exit status."""
    process.join(seconds)
    status = process.exitcode
    process.kill()
    assert status is not None, f"it did not end within {seconds} seconds"
    return status


def hear_ctrl_c() -> None:
    """As a process does that a person starts: what runs in the background of a script is told to ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(arguments: list[str], given: Path | None, said: Path, warned: Path, fault: tuple[Any, ...]) -> None:
    from transduce.cli.main import run

    hear_ctrl_c()
    if given is not None:
        os.dup2(os.open(given, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)
    _write_to(said, warned)
    if fault:
        Faults(*fault).arm()
    sys.argv = ["transduce", *arguments]
    run()


def _run_program(program: str, arguments: tuple[str, ...], said: Path, warned: Path) -> None:
    _write_to(said, warned)
    sys.argv = ["-c", *arguments]
    exec(program, {"__name__": "__main__"})


def _write_to(said: Path, warned: Path) -> None:
    for standard, path in ((1, said), (2, warned)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), standard)
