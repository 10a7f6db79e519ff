"""What every interface needs of HTTP: bodies of any kind read within limits, keys checked, clients that left."""

import asyncio
import json
from collections.abc import Awaitable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar, final

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.admission import RateLimit
from transduce.serving.keys import ApiKey, find_key
from transduce.serving.refusal import BadRequest, Forbidden, TooLarge, TooSlow
from transduce.serving.settings import Limits

B = TypeVar("B", bound="Body")
T = TypeVar("T")
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_FIELDS: Final = 1_000
# Elements of a list: each wrong one costs the time of an error.
_ELEMENTS: Final = 20_000
# Characters of an unknown field's name that its error has.
_SHOWN: Final = 50
# Of a character in JSON at most (two escapes), and of all that is no text.
_JSON_BYTES: Final = 12
_OTHER_BYTES: Final = 100_000


def bounded(value: object) -> object:
    """A list as it is, if there is time to look at all of it.

    Raises:
        ValueError: It is longer.
    """
    if isinstance(value, list) and len(value) > _ELEMENTS:
        raise ValueError(f"{len(value):,} elements, of which at most {_ELEMENTS:,} are read")
    return value


Texts = Annotated[list[str], BeforeValidator(bounded)]


class Body(BaseModel):
    """The fields of a request's body; what is not known is ignored, as clients of other servers send more."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


@final
class BodyLimit:
    """Refuses bodies of more than so many bytes, announced or not, before they are in memory."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what is received."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise TooLarge(f"the body has more than {self._most:,} bytes")
            return message

        await self._app(scope, counted, send)


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """The fields of a body, JSON or form, with those of the address under them.

    Raises:
        BadRequest: It is neither, or no object.
        TooLarge: As JSON it is larger than texts within the limits can make it.
        TooSlow: It did not arrive in time.
    """
    seconds = limits.time
    fields: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        async with asyncio.timeout(seconds):
            if kind in _FORMS:
                return fields | await _read_form(request)
            body = await request.body()
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {seconds:g} seconds") from None
    if not body.strip():
        return fields
    # Reading JSON keeps everybody waiting: its time grows with its size, and may be long for what holds no text.
    if len(body) > (most := _JSON_BYTES * limits.characters + _OTHER_BYTES):
        raise TooLarge(f"the body has {len(body):,} bytes: as JSON it may have {most:,}")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is neither JSON nor a form: set Content-Type and send one of these") from None
    if not isinstance(given, dict):
        raise BadRequest("the body is JSON, but no object: send {...}")
    return fields | given


async def _read_form(request: Request) -> dict[str, Any]:
    """A field that is given several times is a list of its values."""
    try:
        form = await request.form(max_files=1, max_fields=_FIELDS, max_part_size=2**31)
    except HTTPException as error:
        raise BadRequest(f"the form cannot be read: {error.detail}") from None
    except (UnicodeDecodeError, ValueError, KeyError):
        raise BadRequest("the form cannot be read") from None
    fields: dict[str, Any] = {}
    for name in form:
        values = form.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def check(kind: type[B], fields: Mapping[str, Any]) -> B:
    """The fields as a body of a kind.

    Raises:
        BadRequest: One is missing or of the wrong type, or is none of a kind that takes no others; it is named.
    """
    if kind.model_config.get("extra") == "forbid":
        _check_names(fields, kind.model_fields)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        if first["type"] == "missing":
            raise BadRequest(f"Invalid request: missing {place} parameter") from None
        raise BadRequest(f"{place}: {first['msg']}") from None


def _check_names(given: Iterable[str], known: Collection[str]) -> None:
    """At the first that is not known; pydantic would look at all of them, which may be very many.

    Raises:
        BadRequest: There is one; the nearest that is known is named.
    """
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        nearest = get_close_matches(unknown, known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(known))}"
        raise BadRequest(f"{unknown[:_SHOWN]}: there is no such field: {hint}")


def check_texts(texts: list[str]) -> list[str]:
    """Texts as they are, where each can be written down.

    Raises:
        BadRequest: One has half a character (a lone surrogate).
    """
    for number, text in enumerate(texts, 1):
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise BadRequest(f"text {number:,}: has half a character (a lone surrogate)")
    return texts


async def unless_left(request: Request, work: Awaitable[T]) -> T:
    """The work's result; it is dropped as soon as the client has left, whose body was read before.

    Raises:
        ClientDisconnect: It has.
    """
    task, working, stopped = asyncio.current_task(), True, False
    assert task is not None

    def stop(watch: asyncio.Task[None]) -> None:
        nonlocal stopped
        if working and not watch.cancelled():
            stopped = task.cancel()

    watch = asyncio.create_task(_left(request))
    watch.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        # Others may have cancelled it as well, who have to see that.
        if stopped and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        working = False
        watch.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@final
class Doorkeeper:
    """Lets in who has a key, where keys are asked for (they are not None), and nobody more often than allowed.

    Pages of other origins than ``origins`` and the server's own have nothing done, though they have no use of the
    answer anyway: browsers send much for them without asking.
    """

    def __init__(self, keys: tuple[ApiKey, ...] | None, rate: int | None, origins: Collection[str]) -> None:
        self._keys, self._rate, self._limit, self._origins = keys, rate, RateLimit(), origins

    @property
    def asks_for_keys(self) -> bool:
        """Whether nobody is let in without one."""
        return self._keys is not None

    def let_in(self, request: Request, given: object = None) -> None:
        """Count a request; ``given`` is the key in its body, before that of the header ``Authorization``.

        Raises:
            Forbidden: It has no key, or a wrong one, or comes from another's page.
            TooMany: It comes too often.
        """
        self._check_origin(request)
        if self._keys is None:
            address = request.client.host if request.client else ""
            self._limit.take(address, self._rate)
            return
        found = given if isinstance(given, str) and given else _from_header(request)
        if not found:
            raise Forbidden("an API key is needed: send it as api_key, or in the header Authorization")
        key = find_key(self._keys, found)
        if key is None:
            raise Forbidden("Invalid API key")
        self._limit.take(f"key {key.name}", key.rate)

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        # Browsers say it themselves; the older ones of them do not, and none does over HTTP to another machine.
        site = request.headers.get("sec-fetch-site")
        own = site == "same-origin" if site else origin.partition("://")[2] == request.headers.get("host")
        if not own:
            raise Forbidden(f"pages of {origin} may not call this server (--cors {origin} lets them)")


def _from_header(request: Request) -> str:
    """``Authorization: Bearer KEY``, or ``DeepL-Auth-Key KEY``."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() in ("bearer", "deepl-auth-key") else ""


def read_upload(fields: Mapping[str, Any], name: str = "file") -> UploadFile:
    """A file of a form.

    Raises:
        BadRequest: There is none.
    """
    file = fields.get(name)
    if not isinstance(file, UploadFile) or not file.filename:
        raise BadRequest(f"Invalid request: missing {name} parameter: send a file as multipart/form-data")
    return file
