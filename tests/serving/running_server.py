"""A server as a user starts it: a process of its own, called over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

SECONDS = 120


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
    """A running one; ``log`` is what it has written on standard error, line by line."""

    process: subprocess.Popen[str]
    address: str
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
            assert self.process.poll() is None or not self._reader.is_alive(), "\n".join(self.log)
            time.sleep(0.02)
        raise AssertionError("\n".join(self.log))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()


@dataclass(frozen=True)
class Form:
    """Fields of a form."""

    fields: dict[str, Any]


@contextmanager
def serving(*arguments: object) -> Iterator[Server]:
    """``transduce serve`` with these arguments, at a free port, until the block ends."""
    command = [sys.executable, "-m", "transduce", "serve", *map(str, arguments), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    server = Server(process, "")
    try:
        found = re.search(r"http://\S+", server.wait_for_log("http://"))
        assert found is not None
        server.address = found[0]
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
