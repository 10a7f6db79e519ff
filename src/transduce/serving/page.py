"""The page at ``/``: files of this package, served as they are."""

from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def page_routes() -> list[Route]:
    """The page and what it is made of."""
    return [Route("/", _show_page), Route("/assets/{name}", _show_asset)]


async def _show_page(_: Request) -> Response:
    return _asset("index.html")


async def _show_asset(request: Request) -> Response:
    return _asset(request.path_params["name"])


def _asset(name: str) -> Response:
    for folder in ("transduce.serving", "transduce.viewing"):
        files = {each.name: each for each in (resources.files(folder) / "assets").iterdir()}
        if name in files:
            kind = _KINDS[name[name.rindex(".") :]]
            return Response(files[name].read_bytes(), media_type=f"{kind}; charset=utf-8")
    return Response("there is no such file", 404, media_type="text/plain")
