"""What lines ask for: a text, or a JSON object with a text, an id and fields of its owner's; and which lines failed."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, final

from transduce.config import BadInputError, TransduceError
from transduce.data.lines import describe_json_error
from transduce.inference import Translation

TEXT: Final = "text"
ID: Final = "id"
SOURCE: Final = "source"  # in what is written: the text that was translated
_OURS: Final = "translation_"


@final
@dataclass(frozen=True)
class Request:
    """A text to translate; ``fields`` are what else its object has, its id first: of plain text, the line's number."""

    text: str
    fields: dict[str, Any]

    def beside(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """The request's own fields, and ours behind them: as ``translation_NAME`` where it has one of that name."""
        values = {SOURCE: self.text, **ours}
        names = free_names(self.fields, values)
        return {**self.fields, **{names[name]: value for name, value in values.items()}}


def free_names(taken: Iterable[str], ours: Iterable[str]) -> dict[str, str]:
    """What our fields are called beside those of others: ``translation_NAME`` where there is one of that name."""
    used, names = set(taken), {}
    for name in ours:
        free = name
        while free in used:
            free = f"{_OURS}{free}"
        names[name] = free
        used.add(free)
    return names


@final
@dataclass(frozen=True)
class Answer:
    """A request with its translation."""

    request: Request
    translation: Translation


@final
class RequestReader:
    """Reads lines as requests.

    With ``json``, the first line that is not blank decides: where it begins as a JSON object does, every line has to be
    one, or blank. A blank line is an empty text. ``field`` is the field that has the text.
    """

    def __init__(self, *, json: bool, field: str = TEXT) -> None:
        self._objects = None if json else False
        self._field = field
        self._first = 0  # the number of the line that has decided
        self._looks = not json  # for objects that are not asked for

    def answering(
        self, translate: Callable[[list[str], int], list[Translation]]
    ) -> Callable[[list[str], int], Iterator[Answer]]:
        """From lines and the number of the first of them to answers, by a translation of texts."""

        def answer(lines: list[str], first_number: int) -> Iterator[Answer]:
            requests, error = self.read(lines, first_number)
            translations = translate([request.text for request in requests], first_number) if requests else []
            for pair in zip(requests, translations, strict=True):
                yield Answer(*pair)
            if error is not None:
                raise error

        return answer

    def read(self, lines: list[str], first_number: int) -> tuple[list[Request], BadInputError | None]:
        """The requests of lines, the first of them number ``first_number``, up to the first that is none.

        The error says of that one that it is no JSON object where lines are, or has no text.
        """
        if self._objects is None:
            full = ((number, line) for number, line in enumerate(lines, first_number) if line.strip())
            self._first, line = next(full, (0, ""))
            self._objects = line.lstrip().startswith("{") if line else None
        if self._looks:
            self._look(lines, first_number)
        if not self._objects:
            return [_read_text(line, number) for number, line in enumerate(lines, first_number)], None
        requests: list[Request] = []
        for number, line in enumerate(lines, first_number):
            try:
                requests.append(_read_object(line, number, self._first, self._field))
            except BadInputError as error:
                return requests, error
        return requests, None

    def _look(self, lines: list[str], first_number: int) -> None:
        """Warn where the first line that is not blank is an object, though all are read as text."""
        for number, line in enumerate(lines, first_number):
            if not line.strip():
                continue
            self._looks = False
            with suppress(BadInputError):
                _read_object(line, number, number, self._field)
                _log.warning(
                    f"line {number:,}: is a JSON object, and translated as it is: --format jsonl translates the text "
                    f"of objects, and writes objects"
                )
            return


def _read_text(line: str, number: int) -> Request:
    return Request(line, {ID: number})


def _read_object(line: str, number: int, first: int, field: str) -> Request:
    if not line.strip():
        return _read_text("", number)
    try:
        fields = json.loads(line, parse_constant=_refuse)
        # What could not be written again must not come in: numbers without end, half of a surrogate pair.
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        # Plain text may begin with a brace too; but text that was meant as an object must not be translated as it is.
        plain = f': of plain text, write each line as {{"{field}": "..."}}' if number == first else ""
        raise BadInputError(f"line {number:,}: not readable JSON: {describe_json_error(error)}{plain}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get(field), str):
        others = "" if number == first else f", and line {first:,} is an object"
        raise BadInputError(
            f'line {number:,}: no JSON object with a string "{field}"{others}: write {{"{field}": "..."}}'
        )
    text = fields.pop(field)
    return Request(text, {ID: number} | fields)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_MOST_NAMED: Final = 10
_MANY_EMPTY: Final = 0.5  # share of empty outputs that is no chance
_log = logging.getLogger(__name__)


@final
@dataclass
class Failures:
    """How many lines there were, and what is said of those that failed: no more than can be named.

    ``left_out`` are those that were not wanted; of the ``translated`` ones, which have text, the output of ``empty``
    is empty.
    """

    lines: int = 0
    failed: int = 0
    left_out: int = 0
    translated: int = 0
    empty: int = 0
    named: list[str] = field(default_factory=list)

    def count(self, error: str | None) -> None:
        """The next line, and why it failed if it did; nothing where that has been said already."""
        self.lines += 1
        if error is not None:
            self.failed += 1
            if len(self.named) < _MOST_NAMED:
                self.named.append(f"line {self.lines:,}" + (error and f": {error}"))

    def count_translation(self, source: str, translation: Translation) -> None:
        """The next line, with its output."""
        self.count(translation.error)
        if translation.error is None and source.strip():
            self.translated += 1
            self.empty += not translation.text.strip()

    def describe_lines(self) -> str:
        """How many there were, and how many of them failed or were left out."""
        others = {"failed": self.failed, "left out": self.left_out}
        which = " and ".join(f"{count:,} {name}" for name, count in others.items() if count)
        return f"{self.lines:,} lines" + (f" ({which})" if which else "")

    def warn(self) -> None:
        """At the end, warn of what is an output for each line and no use."""
        if self.empty > _MANY_EMPTY * self.translated:
            _log.warning(
                f"{self.empty:,} of {self.translated:,} outputs are empty, though their lines are not: the model "
                f"writes nothing. Is it trained far enough, and is this its source language?"
            )
        if self.left_out and self.left_out == self.lines:
            _log.warning(f"all {self.lines:,} lines are left out: none has the score that --min-score asks for")

    def add(self, name: str, others: "Failures") -> None:
        """Those of a file of this name."""
        self.lines += others.lines
        self.failed += others.failed
        self.left_out += others.left_out
        self.translated += others.translated
        self.empty += others.empty
        self.named += [f"{name} {each}" for each in others.named[: _MOST_NAMED - len(self.named)]]

    def describe(self, what: str, instead: str) -> list[str]:
        """One message that names those that failed; none where none did."""
        if not self.failed:
            return []
        more = f"; and {self.failed - len(self.named):,} more" if self.failed > len(self.named) else ""
        return [f"{self.failed:,} of {self.lines:,} lines {what} ({instead}): {'; '.join(self.named)}{more}"]

    def check(self, what: str, instead: str) -> None:
        """At the end, where all that could be done is done; ``warn`` comes first.

        Raises:
            TransduceError: Lines failed; they are named.
        """
        self.warn()
        if self.failed:
            raise TransduceError(*self.describe(what, instead))
