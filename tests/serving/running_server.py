"""A server as a user starts it: a process of its own, called over HTTP.

It and its models' processes begin with torch imported, as to import it takes longer than most tests, unless a test
wants them from the very start.
"""

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests import command

SECONDS = 120
_CREATE = asyncio.create_subprocess_exec


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Server:
    """A running one; ``log`` is what it has written into a pipe as standard error, line by line."""

    process: BaseProcess
    pipe: Path
    address: str = ""
    log: list[str] = field(default_factory=list)

    def call(self, path: str, body: object = None, method: str | None = None, **headers: str) -> Answer:
        """Send a body: an object as JSON, a pair of ``form`` and fields as a form, or bytes as they are."""
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=SECONDS)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        data: bytes | None = None
        if isinstance(body, bytes):
            data = body
        elif isinstance(body, Form):
            data = urlencode(body.fields, doseq=True).encode()
            headers.setdefault("content-type", "application/x-www-form-urlencoded")
        elif body is not None:
            data = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def children(self) -> list[int]:
        """The processes of its models."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(each) for each in found.stdout.split()]

    def wait_for_log(self, pattern: str) -> str:
        """The first line that has the pattern."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for line in list(self.log):
                if re.search(pattern, line):
                    return line
            if not self.process.is_alive():
                self._reader.join(1)
                break
            time.sleep(0.02)
        raise AssertionError("\n".join(self.log))

    def _read(self) -> None:
        with self.pipe.open() as lines:
            for line in lines:
                self.log.append(line.rstrip("\n"))

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()


@dataclass(frozen=True)
class Form:
    """Fields of a form."""

    fields: dict[str, Any]


@contextmanager
def serving(*arguments: object, fresh: bool = False) -> Iterator[Server]:
    """``transduce serve`` with these arguments, at a free port, until the block ends.

    Where it is to be fresh, all processes begin as they do for a user.
    """
    options = ["serve", *map(str, arguments), "--port", "0", "--threads", "1"]
    with TemporaryDirectory() as folder:
        pipe = Path(folder, "stderr")
        os.mkfifo(pipe)
        process = command.call(_execute if fresh else _serve, options, pipe)
        server = Server(process, pipe)
        try:
            found = re.search(r"http://\S+", server.wait_for_log("http://"))
            assert found is not None
            server.address = found[0]
            yield server
        finally:
            process.terminate()
            process.join(60)
            ended = not process.is_alive()
            process.kill()
            assert ended, "it did not end within 60 seconds"


def _execute(options: list[str], pipe: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.dup2(os.open(pipe, os.O_WRONLY), 2)
    os.execv(sys.executable, [sys.executable, "-m", "transduce", *options])


def _serve(options: list[str], pipe: Path) -> None:
    from transduce.cli.main import run

    pytest.MonkeyPatch().setattr(asyncio, "create_subprocess_exec", create_copy)  # until the process ends
    command.hear_ctrl_c()
    os.dup2(os.open(pipe, os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["transduce", *options]
    run()


async def create_copy(*program: str, **settings: Any) -> asyncio.subprocess.Process:
    """A model's process as a copy of the server's: in the place of ``asyncio.create_subprocess_exec``."""
    *_, module, arguments = program
    assert module == "transduce.serving.worker"
    return await _CREATE(*program, **settings, preexec_fn=partial(_work, arguments))


def _work(arguments: str) -> None:
    """Never comes back to where the copy would begin its program."""
    status = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = open(0, closefd=False)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for name in (None, "transduce"):
            log = logging.getLogger(name)
            log.handlers.clear()
            log.setLevel(logging.WARNING)
            log.propagate = True
        from transduce.serving import worker

        worker.main(json.loads(arguments))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
