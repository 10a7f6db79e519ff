"""The server's application: its interfaces, what every answer has, and what becomes of errors."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.deepl import DeepL
from transduce.serving.http import BodyLimit, Doorkeeper
from transduce.serving.keys import ApiKey, read_keys
from transduce.serving.libretranslate import LibreTranslate
from transduce.serving.metrics import CONTENT_TYPE, Metrics
from transduce.serving.models import Models
from transduce.serving.operations import Operation, describe
from transduce.serving.own import Own
from transduce.serving.page import page_routes
from transduce.serving.refusal import Refusal
from transduce.serving.service import Service
from transduce.serving.settings import ServeSettings

# Nothing but what this server sends itself is shown or run, and nobody puts it into a page of theirs.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
# What a client that left is told; nobody reads it, and the log knows.
_LEFT: Final = 499
_log = logging.getLogger("transduce.serving")


def make_app(settings: ServeSettings, models: Models) -> ASGIApp:
    """The application of a server, which ends its models' processes when it shuts down.

    Raises:
        BadInputError: The file of keys cannot be read.
    """
    metrics = Metrics(models)
    service = Service(models, settings.limits, metrics)
    door = Doorkeeper(_read_keys(settings.keys), settings.limits.rate, settings.cors)

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    async def show_description(_: Request) -> Response:
        return JSONResponse(describe(operations, service.choices()))

    operations = [
        *LibreTranslate(service, door).operations(),
        *DeepL(service, door, metrics).operations(),
        *Own(service, door).operations(),
        Operation(
            "GET", "/metrics", show_metrics, "Figures for Prometheus", answer={"type": "string"}, media="text/plain"
        ),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await models.stop()

    middleware = [Middleware(BodyLimit, settings.limits.body)]
    if settings.cors:
        cors = Middleware(
            CORSMiddleware, allow_origins=settings.cors, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
        middleware.insert(0, cors)
    routes = [each.route() for each in operations]
    described = Operation("GET", "/openapi.json", show_description, "This description").route()
    app = Starlette(
        routes=[*routes, described, *(page_routes() if settings.page else ())],
        middleware=middleware,
        exception_handlers={
            Refusal: _refuse,
            HTTPException: _refuse_route,
            ClientDisconnect: _forget,
            Exception: _fail,
        },
        lifespan=lifespan,
    )
    # Around it, and not among its middleware: that is inside of what answers where something has failed.
    return _Outside(app, metrics)


def _read_keys(path: Path | None) -> tuple[ApiKey, ...] | None:
    """Those who are let in, or None where no file says who."""
    if path is None:
        return None
    keys = read_keys(path)
    if not keys:
        _log.warning("%s: holds no key, so nobody is let in: add one (--add-key NAME)", path)
    return keys


async def _refuse(request: Request, refusal: Any) -> Response:  # noqa: ANN401 - Starlette's own type
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return _explain(request, refusal.message, refusal.status, headers)


async def _refuse_route(request: Request, error: Any) -> Response:  # noqa: ANN401 - Starlette's own type
    return _explain(request, error.detail, error.status_code, error.headers)


async def _forget(_: Request, __: Any) -> Response:  # noqa: ANN401 - Starlette's own type
    return Response(status_code=_LEFT)


async def _fail(request: Request, _: Any) -> Response:  # noqa: ANN401 - Starlette's own type
    return _explain(request, "the server has failed on this request", 500, None)


def _explain(request: Request, message: str, status: int, headers: Any) -> Response:  # noqa: ANN401 - Starlette's own type
    # DeepL's clients look for another name.
    name = "message" if request.url.path.startswith("/v2/") else "error"
    # A message may name what was sent, which need not be text that can be written down.
    return JSONResponse({name: message.encode("utf-8", "replace").decode()}, status, headers)


@final
class _Outside:
    """Around all: the headers of every answer, and what is counted of it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an answer on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in given)]
            await send(message)

        begin = perf_counter()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.count_request(_path(scope), status, perf_counter() - begin)


def _path(scope: Scope) -> str:
    """The route's address; there are only so many, whatever is asked for."""
    route = scope.get("route")
    return getattr(route, "path", "other")
