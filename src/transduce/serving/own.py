"""This server's own interface: all that a ``Translator`` does, and what stands inside a translation."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal, final

from pydantic import BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from transduce.serving.http import Body, Doorkeeper, Texts, bounded, check, check_texts, read_fields, unless_left
from transduce.serving.languages import language_name
from transduce.serving.operations import Operation
from transduce.serving.refusal import BadRequest, NotFound, Refusal
from transduce.serving.service import AUTO, Job, Service

_OBJECT: Final = {"type": "object"}
_JSON: Final = ("application/json",)
_Detail = Literal["score", "log_probability", "tokens", "alignment", "attention", "at_limit"]
_Details = Annotated[tuple[_Detail, ...], Field(max_length=10), BeforeValidator(bounded)]
_Head = Annotated[str, Field(pattern=r"^(encoder|decoder|cross)/\d{1,4}/\d{1,4}$")]
_Format = Literal["text", "html"]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


class OwnBody(Body):
    """A body of this interface: it has no clients that send more, so what is not known is refused as a mistake."""

    model_config = ConfigDict(extra="forbid")
    api_key: str | None = None


class Settings(OwnBody):
    """How to search, in place of the model's own settings; what each means stands in ``GenerationConfig``."""

    beam_size: Annotated[int, Field(ge=1, le=32)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    coverage_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    diversity: Annotated[float, Field(ge=0, le=100)] | None = None
    max_length: Annotated[int, Field(ge=1, le=4096)] | None = None
    max_extra_length: Annotated[int, Field(ge=0, le=4096)] | None = None
    min_length: Annotated[int, Field(ge=0, le=4096)] | None = None
    no_repeat_ngram: Annotated[int, Field(ge=0, le=100)] | None = None
    replace_unknown: bool | None = None
    sampling: bool | None = None
    temperature: Annotated[float, Field(gt=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None


# What a term is written as; either has a letter at least.
_Term = Annotated[str, Field(pattern=r"\S")]
_Glossary = Annotated[dict[_Term, _Term], Field(default_factory=dict, max_length=1_000)]


class Translate(Settings):
    """``POST /v1/translate``.

    ``text`` is a text or a list of texts. ``details`` are given of each output beside its text; alignment and attention
    are a sentence's, and need ``split_sentences`` false. ``glossary`` says how terms of the source are written: a
    sentence that has the term has its translation. ``prefixes`` and ``must_contain`` are one for each text, and
    ``must_not_contain`` holds for all.
    """

    text: Annotated[Texts, BeforeValidator(_one_or_many)]
    source: str = AUTO
    target: str
    format: _Format = "text"
    n_best: Annotated[int, Field(ge=1)] = 1
    split_sentences: bool = True
    details: _Details = ()
    glossary: _Glossary
    prefixes: Texts | None = None
    must_contain: Annotated[list[Texts], BeforeValidator(bounded)] | None = None
    must_not_contain: Texts | None = None


class Stream(Settings):
    """``POST /v1/translate/stream``: one text, of any number of sentences."""

    text: str
    source: str = AUTO
    target: str
    details: _Details = ()
    glossary: _Glossary


class Attention(OwnBody):
    """``POST /v1/attention``.

    ``output`` is what is written; left out, what the model writes. ``mute`` names heads that add nothing, each as
    ``KIND/LAYER/HEAD`` (encoder, decoder or cross; numbers from 0).
    """

    text: str
    source: str
    target: str
    output: str | None = None
    mute: Annotated[tuple[_Head, ...], Field(max_length=1_000), BeforeValidator(bounded)] = ()


class Search(Settings):
    """``POST /v1/search``: the search for the output of one sentence."""

    text: str
    source: str
    target: str
    prefix: str | None = None


@final
class Own:
    """The operations, each a method."""

    def __init__(self, service: Service, door: Doorkeeper) -> None:
        self._service, self._door = service, door

    def operations(self) -> list[Operation]:
        """What is at which address."""
        return [
            Operation(
                *("POST", "/v1/translate", self.translate, "Translate texts, with all that is known of each output"),
                *(Translate, _OBJECT),
                takes=_JSON,
            ),
            Operation(
                *("POST", "/v1/translate/stream", self.stream, "Translate a text, sentence by sentence as events"),
                *(Stream, {}),
                media="text/event-stream",
                takes=_JSON,
            ),
            Operation(
                *("POST", "/v1/attention", self.attention, "All attention weights of a sentence and its output"),
                *(Attention, _OBJECT),
                takes=_JSON,
            ),
            Operation(
                *("POST", "/v1/search", self.search, "All hypotheses of a search, with what might have come next"),
                *(Search, _OBJECT),
                takes=_JSON,
            ),
            Operation("GET", "/v1/models", self.models, "All models", answer={"type": "array", "items": _OBJECT}),
            Operation(
                *("GET", "/v1/models/{name}", self.model, "One model"), answer=_OBJECT, refusals=("404", "500", "503")
            ),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate texts; the answer has ``translations``, each as its details say."""
        body = check(Translate, await self._fields(request))
        texts = check_texts(body.text)
        requirements = {
            name: value
            for name in ("glossary", "prefixes", "must_contain", "must_not_contain")
            if (value := getattr(body, name))
        }
        if body.n_best - 1 > (most := self._service.limits.alternatives):
            raise BadRequest(f"n_best {body.n_best}: at most {most + 1} outputs are given")
        job = Job(
            *(texts, body.source, body.target, body.format),
            alternatives=body.n_best - 1,
            strict=True,
            split=body.split_sentences,
            details=body.details,
            settings=_settings(body),
            requirements=requirements,
        )
        answer = await unless_left(request, self._service.translate(job))
        result: dict[str, Any] = {"translations": answer.outputs, "model": answer.model.name}
        if answer.detected is not None:
            result["detected"] = {"language": answer.detected.language, "confidence": answer.detected.confidence}
        return JSONResponse(result)

    async def stream(self, request: Request) -> Response:
        """Translate a text; each sentence is an event as soon as it and those before it are translated."""
        body = check(Stream, await self._fields(request))
        (text,) = check_texts([body.text])
        requirements = {"glossary": body.glossary} if body.glossary else {}
        job = Job(
            [text], body.source, body.target, details=body.details, settings=_settings(body), requirements=requirements
        )
        sentences = self._service.stream(job)
        # A refusal that is certain before the first sentence has a status of its own.
        first = await unless_left(request, anext(sentences, None))
        return StreamingResponse(_events(first, sentences), media_type="text/event-stream")

    async def attention(self, request: Request) -> Response:
        """The weights of every kind, layer and head, packed as the pages of ``transduce attention`` have them."""
        body = check(Attention, await self._fields(request))
        check_texts([body.text, body.output or ""])
        mute = [[kind, int(layer), int(head)] for kind, layer, head in (each.split("/") for each in body.mute)]
        work = self._service.ask(body.source, body.target, "attend", body.text, output=body.output, mute=mute)
        return JSONResponse(await unless_left(request, work))

    async def search(self, request: Request) -> Response:
        """The tree of hypotheses, as ``transduce search --format json`` has it."""
        body = check(Search, await self._fields(request))
        check_texts([body.text, body.prefix or ""])
        settings = _settings(body) | ({} if body.prefix is None else {"prefix": body.prefix})
        work = self._service.ask(body.source, body.target, "search", body.text, settings=settings)
        return JSONResponse(await unless_left(request, work))

    async def models(self, _: Request) -> Response:
        """What each model translates, and whether it is loaded."""
        ready = {each.model.name: each.is_ready for each in self._service.models.processes}
        return JSONResponse(
            [
                {
                    "name": each.name,
                    "source": {"code": each.source, "name": language_name(each.source)},
                    "target": {"code": each.target, "name": language_name(each.target)},
                    "loaded": ready[each.name],
                }
                for each in self._service.models.served
            ]
        )

    async def model(self, request: Request) -> Response:
        """A model's card: what it is."""
        self._door.let_in(request, request.query_params.get("api_key"))
        name = request.path_params["name"]
        for each in self._service.models.served:
            if each.name == name:
                card = await self._service.ask(each.source, each.target, "card", "")
                return JSONResponse({"name": name, **card})
        raise NotFound(f"{name}: there is no such model")

    async def _fields(self, request: Request) -> dict[str, Any]:
        fields = await read_fields(request, self._service.limits)
        self._door.let_in(request, fields.get("api_key"))
        return fields


def _settings(body: Settings) -> dict[str, Any]:
    names = Settings.model_fields.keys() - OwnBody.model_fields.keys()
    return {name: value for name in names if (value := getattr(body, name)) is not None}


async def _events(first: dict[str, Any] | None, others: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    """Server-sent events: ``sentence`` for each, then ``done``, or ``error`` where one has failed."""
    try:
        if first is not None:
            yield _event("sentence", first)
        async for each in others:
            yield _event("sentence", each)
    except Refusal as refusal:
        yield _event("error", {"error": refusal.message})
    else:
        yield _event("done", {})


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
