"""DeepL's API, as far as a model can do what it asks, so that its official clients call this server unchanged.

https://developers.deepl.com/docs/api-reference
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, final

from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serving.http import Body, Doorkeeper, Texts, check, check_texts, read_fields, unless_left
from transduce.serving.languages import language_name
from transduce.serving.metrics import Metrics
from transduce.serving.operations import Operation
from transduce.serving.refusal import BadRequest
from transduce.serving.service import Job, Service

_METHODS: Final[tuple[Literal["GET", "POST"], ...]] = ("GET", "POST")
_OBJECT: Final = {"type": "object"}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
# What there is to be had is what is sent: nobody pays by the character.
_NO_LIMIT: Final = 10**12
_SPLIT: Final[dict[str, bool | Literal["lines"]]] = {"0": False, "1": "lines", "nonewlines": True}
# Where a model can do nothing of the kind, what it asks for is refused rather than passed over.
_REFUSED: Final = (
    *("glossary_id", "glossary_ids", "context_id", "style_id", "translation_memory_id", "custom_instructions"),
    *("ignore_tags", "non_splitting_tags", "splitting_tags"),
)


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Translate(Body):
    """``POST /v2/translate``."""

    text: Annotated[Texts, BeforeValidator(_one_or_many)]
    target_lang: str
    source_lang: str | None = None
    tag_handling: Literal["html", "xml"] | None = None
    split_sentences: Literal["0", "1", "nonewlines"] = "1"
    formality: Literal["default", "prefer_more", "prefer_less", "more", "less"] = "default"


@final
class DeepL:
    """The routes, each a method."""

    def __init__(self, service: Service, door: Doorkeeper, metrics: Metrics) -> None:
        self._service, self._door, self._metrics = service, door, metrics

    def operations(self) -> list[Operation]:
        """What is at which address."""
        return [
            Operation("POST", "/v2/translate", self.translate, "Translate texts", Translate, _OBJECT),
            # Some of the official clients ask by POST.
            *(
                operation
                for method in _METHODS
                for operation in (
                    Operation(method, "/v2/languages", self.languages, "The languages of one side", answer=_LIST),
                    Operation(method, "/v2/usage", self.usage, "How much was translated", answer=_OBJECT),
                )
            ),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate texts, each from its own language where none is given."""
        fields = await self._fields(request)
        body = check(Translate, fields)
        texts = check_texts(body.text)
        if body.formality in ("more", "less"):
            raise BadRequest(
                f"formality {body.formality}: these models have none; prefer_{body.formality} is passed over"
            )
        for name in _REFUSED:
            if fields.get(name):
                raise BadRequest(f"{name}: is not supported")
        if body.tag_handling == "xml":
            raise BadRequest("tag_handling xml: is not supported; html is")
        options: dict[str, Any] = {"format": body.tag_handling or "text", "split": _SPLIT[body.split_sentences]}
        target = self._target(body.target_lang)
        self._service.check(texts)  # all together: they may be of several languages
        return JSONResponse({"translations": await unless_left(request, self._translate(texts, body, target, options))})

    async def languages(self, request: Request) -> Response:
        """The languages of one side, in DeepL's spelling."""
        fields = await self._fields(request)
        models = self._service.models
        targets = dict.fromkeys(target for source in models.sources for target in models.targets(source))
        codes = list(targets) if fields.get("type") == "target" else models.sources
        formality = {"supports_formality": False} if fields.get("type") == "target" else {}
        return JSONResponse([{"language": _spell(code), "name": language_name(code), **formality} for code in codes])

    async def usage(self, request: Request) -> Response:
        """How much was translated."""
        await self._fields(request)
        return JSONResponse({"character_count": self._metrics.characters(), "character_limit": _NO_LIMIT})

    async def _translate(
        self, texts: list[str], body: Translate, target: str, options: dict[str, Any]
    ) -> list[dict[str, Any]]:
        # Each text may be of another language.
        given = None if body.source_lang is None else _match(body.source_lang, self._service.models.sources)
        sources = [given or self._service.find_source(text, target) for text in texts]
        found: dict[int, dict[str, Any]] = {}
        deadline = self._service.find_deadline()
        for source in dict.fromkeys(sources):
            places = [place for place, each in enumerate(sources) if each == source]
            job = Job([texts[place] for place in places], source, target, **options)
            answer = await self._service.translate(job, deadline)
            language = _spell(answer.model.source)
            for place, output in zip(places, answer.outputs, strict=True):
                found[place] = {
                    "detected_source_language": language,
                    "text": output["text"],
                    "billed_characters": len(texts[place]),
                }
        return [found[place] for place in range(len(texts))]

    def _target(self, given: str) -> str:
        """A model's own target."""
        models = self._service.models
        return _match(given, [target for each in models.sources for target in models.targets(each)])

    async def _fields(self, request: Request) -> dict[str, Any]:
        fields = await read_fields(request, self._service.limits)
        self._door.let_in(request, fields.pop("auth_key", None))
        return fields


def _match(given: str, codes: Iterable[str]) -> str:
    """The one of these codes that is meant: also the language of a variant (``EN-US``), or its only variant."""
    known = {code.lower().replace("_", "-"): code for code in codes}
    asked = given.lower()
    base = asked.partition("-")[0]
    variants = [code for spelt, code in known.items() if spelt.partition("-")[0] == base]
    return known.get(asked) or known.get(base) or (variants[0] if len(variants) == 1 else given)


def _spell(code: str) -> str:
    return code.upper().replace("_", "-")
