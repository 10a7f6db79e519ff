"""Connections: requests begin in time and with no more than servers read, and there is room for another connection."""

import asyncio
import sys
from functools import partial
from typing import Any, Final, final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if sys.platform != "win32":
    import resource

# Bytes of a request's line and headers, as most servers have it.
_HEAD: Final = 65_536
# Seconds until these are there.
_TIME: Final = 10.0
# Files and pipes that the server itself needs.
_OWN: Final = 64


@final
class _Connection(asyncio.Protocol):
    """One of HTTP, as uvicorn speaks it: that reads a head of any size, and waits for it as long as it takes.

    A client that sends nothing, or the beginning of a request and no more, would keep a connection for good; when all
    files that a process may open are connections, nobody else gets one.
    """

    def __init__(self, seconds: float, most: int, config: uvicorn.Config, server_state: Any, **others: Any) -> None:  # noqa: ANN401 - uvicorn's own
        self._http = HttpToolsProtocol(config, server_state, **others)
        self._seconds, self._most, self._connections = seconds, most, server_state.connections
        self._transport: asyncio.Transport | None = None  # None: it is refused
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._connections) >= self._most:
            transport.abort()
            return
        self._transport = transport
        self._http.connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._begins():
            self._bytes += len(data)
        self._http.data_received(data)
        if not self._begins():
            self._bytes = 0
            self._stop_waiting()
        elif self._bytes > _HEAD:
            self._refuse("431 Request Header Fields Too Large")
        elif self._timer is None:
            self._wait()

    def eof_received(self) -> None:
        if self._transport is not None:
            self._http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        if self._transport is not None:
            self._http.connection_lost(error)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def _begins(self) -> bool:
        """Whether a request's head is read: there was none yet, or what is made of it is not the newest request's."""
        newest = self._http.cycle
        return newest is None or newest.scope is not self._http.scope

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._refuse, "408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: str) -> None:
        assert self._transport is not None
        self._stop_waiting()
        # Browsers open connections before they have a request, and would take what they find there for its answer.
        if self._http.scope is not None:
            self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        self._transport.close()


def limited_connections(seconds: float) -> Any:  # noqa: ANN401 - uvicorn asks for a class, and calls it
    """What uvicorn makes of each connection: as many as there are files to open, which begin within so many seconds."""
    most = sys.maxsize
    if sys.platform != "win32":
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = most if files == resource.RLIM_INFINITY else max(1, files - _OWN)
    return partial(_Connection, min(seconds, _TIME), most)
