"""An interface's operations, from which both its routes and its description (OpenAPI 3.1) are made."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from transduce.version import __version__

Schema = dict[str, Any]
_JSON: Final = "application/json"
# What any operation may answer in place of what was asked for.
_REFUSALS: Final = {
    "400": "The request cannot be answered as it stands",
    "403": "An API key is missing or wrong",
    "404": "There is nothing of that name",
    "413": "It is over a limit",
    "429": "Too much to do, or too many requests: Retry-After says when to come again",
    "500": "The server has failed on it",
    "503": "The model is being loaded: Retry-After says when to come again",
    "504": "It took too long",
}


@final
@dataclass(frozen=True)
class Operation:
    """What is done at an address; ``body`` is what it takes, ``answer`` the schema of what it gives as ``media``."""

    method: Literal["GET", "POST"]
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    summary: str
    body: type[BaseModel] | None = None
    answer: Schema = field(default_factory=dict)
    media: str = _JSON
    takes: Sequence[str] = (_JSON, "application/x-www-form-urlencoded")
    refusals: Sequence[str] = ()

    def route(self) -> Route:
        """It as Starlette has it."""
        return Route(self.path, self.endpoint, methods=[self.method], name=self.path)


def describe(operations: Sequence[Operation], choices: Mapping[str, Sequence[str]]) -> Schema:
    """All operations as an OpenAPI document; ``choices`` are the values that fields of these names may have."""
    paths: dict[str, Schema] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _describe(each, choices)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "transduce",
            "version": __version__,
            "description": "Translations by Transformer models, in LibreTranslate's, DeepL's and an own interface.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
    }


def _describe(operation: Operation, choices: Mapping[str, Sequence[str]]) -> Schema:
    statuses = {
        *(("400", "403", "413", "429", "500", "503", "504") if operation.body else ("429",)),
        *operation.refusals,
    }
    refusal = {"content": {_JSON: {"schema": {"type": "object"}}}}
    described: Schema = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "Done", "content": {operation.media: {"schema": operation.answer}}},
            **{status: {"description": _REFUSALS[status], **refusal} for status in sorted(statuses)},
        },
    }
    if operation.body is not None:
        schema = operation.body.model_json_schema()
        for name in schema["properties"].keys() & choices.keys():
            schema["properties"][name] = {"type": "string", "enum": list(choices[name])}
        content = {kind: {"schema": schema} for kind in operation.takes}
        described["requestBody"] = {"required": True, "content": content}
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return described
