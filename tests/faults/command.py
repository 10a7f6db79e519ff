"""The command line in processes of its own, which begin with torch imported: a start takes no time."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.faults.faults import Faults

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["transduce.cli.main", "transduce.workflows.train", "torch._dynamo"])


def start(arguments: list[str], said: Path, *fault: Any) -> BaseProcess:
    """``transduce ARGUMENTS``, with a fault (its folder, point and count); what it says is appended to ``said``."""
    process = _CONTEXT.Process(target=_run, args=(arguments, said, fault))
    process.start()
    return process


def run(arguments: list[str], said: Path, *fault: Any) -> int:
    """The exit status, which is negative where a signal was the end."""
    process = start(arguments, said, *fault)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def hear_ctrl_c() -> None:
    """As a process does that a person starts: what runs in the background of a script is told to ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(arguments: list[str], said: Path, fault: tuple[Any, ...]) -> None:
    from transduce.cli.main import run

    hear_ctrl_c()
    descriptor = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    if fault:
        Faults(*fault).arm()
    sys.argv = ["transduce", *arguments]
    run()
