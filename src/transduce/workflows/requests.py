"""What a line asks for: its text, or a JSON object with a text, an id and fields of its owner's."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

from transduce.config import BadInputError
from transduce.inference import Translation

TEXT: Final = "text"
ID: Final = "id"


@final
@dataclass(frozen=True)
class Request:
    """A text to translate; ``fields`` are what else its object has, its id first: of plain text, the line's number."""

    text: str
    fields: dict[str, Any]


@final
@dataclass(frozen=True)
class Answer:
    """A request with its translation."""

    request: Request
    translation: Translation


@final
class RequestReader:
    """Reads lines as requests.

    With ``json``, the first line that is not blank decides: where it is a JSON object, every line has to be one, or
    blank. A blank line is an empty text.
    """

    def __init__(self, *, json: bool) -> None:
        self._objects = None if json else False

    def answering(
        self, translate: Callable[[list[str], int], list[Translation]]
    ) -> Callable[[list[str], int], list[Answer]]:
        """From lines and the number of the first of them to answers, by a translation of texts."""

        def answer(lines: list[str], first_number: int) -> list[Answer]:
            requests = self.read(lines, first_number)
            translations = translate([request.text for request in requests], first_number)
            return [Answer(*pair) for pair in zip(requests, translations, strict=True)]

        return answer

    def read(self, lines: list[str], first_number: int) -> list[Request]:
        """The requests of lines, the first of them number ``first_number``.

        Raises:
            BadInputError: The lines are JSON objects, and one of them is none, or has no text; it is named.
        """
        if self._objects is None:
            first = next((line for line in lines if line.strip()), None)
            self._objects = None if first is None else _is_object(first)
        read = _read_object if self._objects else _read_text
        return [read(line, number) for number, line in enumerate(lines, first_number)]


def _read_text(line: str, number: int) -> Request:
    return Request(line, {ID: number})


def _read_object(line: str, number: int) -> Request:
    if not line.strip():
        return _read_text("", number)
    try:
        fields = json.loads(line, parse_constant=_refuse)
        # What could not be written again must not come in: numbers without end, half of a surrogate pair.
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"line {number:,}: not readable JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get(TEXT), str):
        raise BadInputError(
            f'line {number:,}: no JSON object with a string "{TEXT}", as the lines before it are: write '
            f'{{"{TEXT}": "..."}}'
        )
    text = fields.pop(TEXT)
    return Request(text, {ID: number} | fields)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
