"""Connections: requests begin in time and with no more than servers read, answers are read, and others find room."""

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
# Bytes a second that a client reads at least.
_SLOWEST: Final = 1000
# Files and pipes that the server itself needs.
_OWN: Final = 64


@final
class _Connection(asyncio.Protocol):
    """One of HTTP, as uvicorn speaks it: that reads a head of any size, and waits for it as long as it takes.

    A client that sends nothing, or the beginning of a request and no more, would keep a connection for good, and so
    would one that goes on with a body whose request is answered, or does not read what it is sent; when all files that
    a process may open are connections, nobody else gets one.
    """

    def __init__(self, seconds: float, most: int, config: uvicorn.Config, server_state: Any, **others: Any) -> None:  # noqa: ANN401 - uvicorn's own
        self._http = HttpToolsProtocol(config, server_state, **others)
        self._seconds, self._most, self._connections = seconds, most, server_state.connections
        self._transport: asyncio.Transport | None = None  # None: it is refused
        self._bytes = 0
        self._limit: float | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._connections) >= self._most:
            transport.abort()
            return
        self._transport = transport
        # pause_writing at the first byte that waits: less than the usual 64 KiB would wait for good, too.
        transport.set_write_buffer_limits(high=0)
        self._http.connection_made(transport)
        self._limit_reading()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._begins():
            self._bytes += len(data)
        self._http.data_received(data)
        if not self._begins():
            self._bytes = 0
        elif self._bytes > _HEAD:
            self._refuse("431 Request Header Fields Too Large")
            return
        self._limit_reading()

    def eof_received(self) -> None:
        if self._transport is not None:
            self._http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        _cancel(self._reading)
        _cancel(self._writing)
        if self._transport is not None:
            self._http.connection_lost(error)

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._http.pause_writing()
        self._limit_writing(self._transport)

    def resume_writing(self) -> None:
        _cancel(self._writing)
        self._http.resume_writing()

    def _limit_writing(self, transport: asyncio.Transport) -> None:
        """End a connection through which hardly anything goes; a large answer may take longer."""

        def look() -> None:
            if waiting - transport.get_write_buffer_size() < _SLOWEST * self._seconds:
                transport.abort()  # not close: it would wait until everything is written
            else:
                self._limit_writing(transport)

        waiting = transport.get_write_buffer_size()
        self._writing = asyncio.get_running_loop().call_later(self._seconds, look)

    def _begins(self) -> bool:
        """Whether a request's head is read: there was none yet, or what is made of it is not the newest request's."""
        newest = self._http.cycle
        return newest is None or newest.scope is not self._http.scope

    def _answers(self) -> bool:
        """Whether a request is without a whole answer; they are answered in order."""
        newest = self._http.cycle
        return newest is not None and not newest.response_complete

    def _limit_reading(self) -> None:
        """Bound the time of a head, or of the rest of a body whose request is answered: uvicorn bounds silence alone.

        While a request is answered, its body has a limit elsewhere.
        """
        limit = min(self._seconds, _TIME) if self._begins() else None if self._answers() else self._seconds
        if limit != self._limit:
            _cancel(self._reading)
            self._limit = limit
            self._wait()

    def _wait(self) -> None:
        if self._limit is not None:
            self._reading = asyncio.get_running_loop().call_later(self._limit, self._end_waiting, self._answers())

    def _end_waiting(self, answered: bool) -> None:
        # While an earlier request is answered, nothing may be read: the time begins anew when it has its answer.
        if answered or self._answers():
            self._wait()
        else:
            self._refuse("408 Request Timeout")

    def _refuse(self, status: str) -> None:
        assert self._transport is not None
        _cancel(self._reading)
        # Browsers open connections before they have a request, and would take what they find there for its answer. So
        # would a client whose earlier request is not answered yet.
        if self._http.scope is not None and self._begins() and not self._answers():
            self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        self._transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def limited_connections(seconds: float) -> Any:  # noqa: ANN401 - uvicorn asks for a class, and calls it
    """What uvicorn makes of each connection: as many as there are files to open, which read and write within a time.

    In so many ``seconds`` a client has to take what it is sent, or of a large answer a part, and a request to begin: in
    ten at most.
    """
    most = sys.maxsize
    if sys.platform != "win32":
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = most if files == resource.RLIM_INFINITY else max(1, files - _OWN)
    return partial(_Connection, seconds, most)
