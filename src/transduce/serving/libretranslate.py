"""LibreTranslate's API, so that its clients call this server unchanged (https://docs.libretranslate.com)."""

import re
import secrets
import time
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, final

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serving.http import Body, Doorkeeper, Texts, check, check_texts, read_fields, read_upload, unless_left
from transduce.serving.languages import Detected, language_name
from transduce.serving.operations import Operation
from transduce.serving.refusal import BadRequest, NotFound
from transduce.serving.service import Job, Service

_OBJECT: Final = {"type": "object"}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_FILES: Final = (".txt", ".html", ".srt")
_NOT_IN_ADDRESSES: Final = re.compile(r"[^A-Za-z0-9._-]+")
# Translated files wait so many seconds to be fetched, and so many of them: then the oldest goes.
_KEPT: Final = 600.0
_MOST_FILES: Final = 100


class Translate(Body):
    """``POST /translate``."""

    q: str | Texts
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0), BeforeValidator(lambda value: value or 0)] = 0


class Detect(Body):
    """``POST /detect``."""

    q: str


class TranslateFile(Body):
    """``POST /translate_file``."""

    file: Annotated[object, WithJsonSchema({"type": "string", "format": "binary"})] = None
    source: str
    target: str


@final
class LibreTranslate:
    """The routes, each a method."""

    def __init__(self, service: Service, door: Doorkeeper) -> None:
        self._service, self._door = service, door
        self._files = _Files()

    def operations(self) -> list[Operation]:
        """What is at which address."""
        file = TranslateFile, ("multipart/form-data",)
        return [
            Operation("POST", "/translate", self.translate, "Translate a text, or several", Translate, _OBJECT),
            Operation("POST", "/detect", self.detect, "The language of a text", Detect, _LIST),
            Operation("GET", "/languages", self.languages, "What can be translated into what", answer=_LIST),
            Operation(
                "POST", "/translate_file", self.translate_file, "Translate a file", file[0], _OBJECT, takes=file[1]
            ),
            Operation(
                *("GET", "/download_file/{name}", self.download_file, "A translated file"),
                media="application/octet-stream",
                refusals=("404",),
            ),
            Operation("GET", "/frontend/settings", self.settings, "What a page has to know", answer=_OBJECT),
            Operation("GET", "/health", self.health, "Whether the server is up", answer=_OBJECT),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate a text, or several."""
        fields = await self._fields(request)
        body = check(Translate, fields)
        several = isinstance(body.q, list)
        texts = check_texts(body.q if isinstance(body.q, list) else [body.q])
        job = Job(texts, body.source, body.target, body.format, body.alternatives, split="lines")
        answer = await unless_left(request, self._service.translate(job))
        texts = [each["text"] for each in answer.outputs]
        result: dict[str, Any] = {"translatedText": texts if several else texts[0]}
        if body.alternatives:
            others = [[other["text"] for other in each.get("alternatives", ())] for each in answer.outputs]
            result["alternatives"] = others if several else others[0]
        if answer.detected is not None:
            found = _describe(answer.detected)
            result["detectedLanguage"] = [found] * len(texts) if several else found
        return JSONResponse(result)

    async def detect(self, request: Request) -> Response:
        """The language of a text."""
        body = check(Detect, await self._fields(request))
        check_texts([body.q])
        return JSONResponse([_describe(self._service.detect(body.q))])

    async def languages(self, _: Request) -> Response:
        """What can be translated into what."""
        models = self._service.models
        sources = [
            {"code": code, "name": language_name(code), "targets": list(models.targets(code))}
            for code in models.sources
        ]
        return JSONResponse(sources)

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and say where the translation is."""
        fields = await self._fields(request)
        body, file = check(TranslateFile, fields), read_upload(fields)
        name = PurePath(file.filename or "").name
        ending = PurePath(name).suffix.lower()
        if ending not in _FILES:
            raise BadRequest(
                f"files that end in {ending or 'nothing'} are not translated; these are: {', '.join(_FILES)}"
            )
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadRequest("the file is not in UTF-8") from None
        job = Job([text], body.source, body.target, {".html": "html", ".srt": "srt"}.get(ending, "text"), split="lines")
        answer = await unless_left(request, self._service.translate(job))
        key = self._files.keep(f"{PurePath(name).stem}_{body.target}{ending}", answer.outputs[0]["text"])
        address = request.url_for("/download_file/{name}", name=key)
        # Whoever ends TLS before this server says so; nothing else is believed of such headers.
        if request.headers.get("x-forwarded-proto") == "https":
            address = address.replace(scheme="https")
        return JSONResponse({"translatedFileUrl": str(address)})

    async def download_file(self, request: Request) -> Response:
        """A translated file."""
        text = self._files.find(request.path_params["name"])
        headers = {"content-disposition": "attachment"}
        # Never shown as a page of this server, whatever is in it.
        return Response(text.encode("utf-8"), media_type="application/octet-stream", headers=headers)

    async def settings(self, _: Request) -> Response:
        """What a page has to know."""
        first, limits = self._service.models.served[0], self._service.limits
        languages = {
            side: {"code": code, "name": language_name(code)}
            for side, code in (("source", first.source), ("target", first.target))
        }
        return JSONResponse(
            {
                "apiKeys": self._door.asks_for_keys,
                "keyRequired": self._door.asks_for_keys,
                "charLimit": limits.characters,
                "filesTranslation": True,
                "supportedFilesFormat": list(_FILES),
                "frontendTimeout": 500,
                "suggestions": False,
                "language": languages,
            }
        )

    async def health(self, _: Request) -> Response:
        """Whether the server is up."""
        return JSONResponse({"status": "ok"})

    async def _fields(self, request: Request) -> dict[str, Any]:
        fields = await read_fields(request, self._service.limits)
        self._door.let_in(request, fields.get("api_key"))
        return fields


@final
class _Files:
    """Translated files under names that nobody guesses, for a while."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[float, str]] = {}

    def keep(self, name: str, text: str) -> str:
        """A name for a text."""
        self._forget()
        while len(self._texts) >= _MOST_FILES:
            del self._texts[next(iter(self._texts))]  # the oldest
        key = f"{secrets.token_urlsafe(16)}.{_NOT_IN_ADDRESSES.sub('_', name)}"
        self._texts[key] = time.monotonic(), text
        return key

    def find(self, key: str) -> str:
        """The text of a name."""
        self._forget()
        if key not in self._texts:
            raise NotFound("there is no such file, or not any longer")
        return self._texts[key][1]

    def _forget(self) -> None:
        oldest = time.monotonic() - _KEPT
        self._texts = {key: kept for key, kept in self._texts.items() if kept[0] >= oldest}


def _describe(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}
