"""Another library's options, which may be a stranger's: each is of the type that it should be, or is named."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, final

from transduce.config import BadInputError
from transduce.config.model import MOST_WIDE
from transduce.config.values import shorten

_LARGEST: Final = 2**53  # no option needs more, and floating-point numbers have all integers up to it
_PLAIN: Final = (bool, int, float, str, bytes, list, tuple, dict)
_SCALARS: Final = (bool, int, float, str)
T = TypeVar("T")


@final
@dataclass(frozen=True)
class Options:
    """Options by name; ``place`` is their file.

    ``sections`` are names of sections, with a point behind each (the whole file's is empty), and their values: what the
    first lacks is looked for in the next. A value of None (YAML's and JSON's null) is one that is left out.
    """

    place: Path | str
    sections: tuple[tuple[str, Mapping[str, Any]], ...]

    @classmethod
    def of(cls, values: Mapping[str, Any], place: Path | str) -> "Options":
        """All of a file."""
        return cls(place, (("", values),))

    def section(self, name: str, *, optional: bool = False, around: bool = False) -> "Options":
        """A section within this one; with ``around``, what it lacks is looked for in this one.

        Raises:
            BadInputError: It is missing and not ``optional``, or is no section.
        """
        key, values = self._find(name)
        if values is None and optional:
            values = {}
        if values is None:
            raise BadInputError(f"{self.place}: the section {key} is missing")
        if not isinstance(values, Mapping):
            raise self.refuse(name, "a section with options by name belongs here")
        return Options(self.place, ((f"{key}.", values), *(self.sections if around else ())))

    @property
    def names(self) -> list[str]:
        """All that are given, even as None."""
        return [name for _, values in self.sections for name in values]

    def given(self, name: str) -> Any:  # noqa: ANN401 - whatever the file says
        """A value of any type, None where there is none."""
        return self._find(name)[1]

    def integer(self, name: str, default: int | None = None, *, least: int = -_LARGEST, most: int = _LARGEST) -> int:
        """A whole number within bounds; without a default, one that has to be there.

        Raises:
            BadInputError: It is missing, or something else.
        """
        expected = f"a whole number{_range(least, most)}"
        value = self._read(name, default, expected)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(name, f"{expected} belongs here")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        """How many of something there are, or how wide something is, within what ours can have.

        Raises:
            BadInputError: It is missing, or something else.
        """
        return self.integer(name, default, least=1, most=MOST_WIDE)

    def number(
        self, name: str, default: float | None = None, *, least: float = -_LARGEST, most: float = _LARGEST
    ) -> float:
        """A finite number within bounds.

        Raises:
            BadInputError: It is missing, or something else.
        """
        expected = f"a number{_range(least, most)}"
        value = self._read(name, default, expected)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(name, f"{expected} belongs here")
        return float(value)

    def rate(self, name: str, default: float | None = None) -> float:
        """A probability below 1, as dropout has, or the first of a schedule of them.

        Raises:
            BadInputError: It is missing, or something else.
        """
        value = self._read(name, default, "a rate")
        rate = value[0] if isinstance(value, list | tuple) and value else value
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < 1:
            raise self.refuse(name, "a rate belongs here, a number from 0 to less than 1")
        return float(rate)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false, or 1 or 0.

        Raises:
            BadInputError: It is missing, or something else.
        """
        value = self._read(name, default, "true or false")
        if not isinstance(value, int) or value not in (0, 1):
            raise self.refuse(name, "true or false belongs here")
        return bool(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Text.

        Raises:
            BadInputError: It is missing, or something else.
        """
        value = self._read(name, default, "text")
        if not isinstance(value, str):
            raise self.refuse(name, "text belongs here")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of symbols.

        Raises:
            BadInputError: It is missing, or something else.
        """
        value = self._read(name, None, "a list of symbols")
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.refuse(name, "a list of symbols belongs here")
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: str | None = None) -> T:
        """What a word means, of those that ours can say; the default may be another one, which is refused.

        Raises:
            BadInputError: It is missing, or another one.
        """
        value = self._read(name, default, _words(choices))
        if not isinstance(value, str) or value not in choices:
            raise self._error(name, value, f"no model of ours has it, only {_words(choices)}")
        return choices[value]

    def check(self, sayable: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse what no model of ours can follow: values, by their names, that are none of these.

        Raises:
            BadInputError: The first such value.
        """
        for name, values in sayable.items():
            value = self.given(name)
            if value is not None and not (_is_comparable(value) and value in values):
                raise self.refuse(name, "no model of ours has it")

    def check_unset(self, names: Iterable[str]) -> None:
        """Refuse options that no model of ours can follow, where they say anything but no, nothing or none.

        Raises:
            BadInputError: The first such option.
        """
        for name in names:
            value = self.given(name)
            if value is not None and (not isinstance(value, _PLAIN) or value):
                raise self.refuse(name, "no model of ours has it")

    def check_known(self, names: Collection[str]) -> None:
        """Refuse any other option, as in a file that is written by hand.

        Raises:
            BadInputError: The first such option.
        """
        for name in self.names:
            if name not in names:
                raise self.refuse(name, f"unknown, of {', '.join(names)}")

    def refuse(self, name: str, why: str) -> BadInputError:
        """The error about a value."""
        return self._error(name, self.given(name), why)

    def key(self, name: str) -> str:
        """The whole name of a value, where it stands or would stand."""
        return self._find(name)[0]

    def _error(self, name: str, value: object, why: str) -> BadInputError:
        shown = shorten(value) if value is None or isinstance(value, _PLAIN) else "an object"
        return BadInputError(f"{self.place}: {self.key(name)} = {shown}: {why}")

    def _read(self, name: str, default: object, expected: str) -> object:
        key, value = self._find(name)
        if value is None and default is None:
            raise BadInputError(f"{self.place}: {key} is missing: {expected} belongs there")
        return default if value is None else value

    def _find(self, name: str) -> tuple[str, Any]:
        for section, values in self.sections:
            if values.get(name) is not None:
                return f"{section}{name}", values[name]
        return f"{self.sections[0][0]}{name}", None


def same(place: Path | str, values: Mapping[str, T]) -> T:
    """The value that an encoder and a decoder have in common, whose whole names these are.

    Raises:
        BadInputError: Each has its own.
    """
    first, *others = values.values()
    if any(other != first for other in others):
        listed = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise BadInputError(f"{place}: {listed}: ours has one for both")
    return first


def _is_comparable(value: object) -> bool:
    """Whether it is plain: of anything else, such as a tensor, there is no telling what comparing it does."""
    parts = value if isinstance(value, list | tuple) else (value,)
    return all(isinstance(part, _SCALARS) for part in parts)


def _range(least: float, most: float) -> str:
    match (least > -_LARGEST, most < _LARGEST):
        case (True, True):
            return f" from {least:,} to {most:,}"
        case (True, False):
            return f" from {least:,}"
        case (False, True):
            return f" up to {most:,}"
        case _:
            return ""


def _words(choices: Iterable[str]) -> str:
    return " or ".join(map(repr, choices))
