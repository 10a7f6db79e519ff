"""A server that runs until it is told to stop."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final

import uvicorn

from transduce.config import BadInputError
from transduce.serving.app import make_app
from transduce.serving.connections import limited_connections
from transduce.serving.models import Models
from transduce.serving.refusal import Failed
from transduce.serving.settings import ServeSettings

# Connections that wait to be taken.
_BACKLOG: Final = 128
_log = logging.getLogger("transduce.serving")


def serve(settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is under way, for so many seconds at most.

    Raises:
        BadInputError: The address cannot be taken, a model cannot be loaded, or the file of keys not be read.
    """
    listening = _listen(settings.host, settings.port)
    host, port = listening.getsockname()[:2]
    if not _is_loopback(host):
        _log.warning(
            f"{host} is reached from other machines, without encryption: put a server with TLS before this one"
            + ("" if settings.keys else ", and ask for keys (--keys)")
        )
    try:
        asyncio.run(_serve(settings, listening, f"http://{f'[{host}]' if ':' in host else host}:{port}/"))
    except Failed as error:
        raise BadInputError(error.message) from error
    finally:
        listening.close()


async def _serve(settings: ServeSettings, listening: socket.socket, address: str) -> None:
    models = Models(settings)
    try:
        app = make_app(settings, models)
        await models.start()
        config = uvicorn.Config(
            app,
            http=limited_connections(settings.limits.time),
            ws="none",
            backlog=_BACKLOG,
            log_config=None,
            access_log=False,  # it would write down addresses with texts in them
            server_header=False,
            # Anybody can write X-Forwarded-For: whose requests are counted is who has the connection.
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(settings.grace)),
        )
        _log.info(f"serving {', '.join(each.name for each in models.served)} at {address} (Ctrl+C stops)")
        with _ended_by_signals():
            await uvicorn.Server(config).serve(sockets=[listening])
        _log.info("stopped")
    finally:
        await models.stop()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """To be told to stop is how a server ends: uvicorn raises the signal once more, behind its own end of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Named as TCP: only then asyncio turns Nagle's algorithm off, by which an answer waits for an acknowledgement.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        raise BadInputError(f"--host {host} --port {port}: cannot listen there: {error.strerror or error}") from error
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
