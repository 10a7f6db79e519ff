"""What is wrong with a value of a section, in words that say what would be right."""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from transduce.config import architectures
from transduce.config.model import TransformerConfig
from transduce.config.section import Setting, facts

_BOUNDS: Final = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
_SHOWN: Final = 80  # characters of a value that is wrong
# Of lists within lists, no more than that has room for: a stranger's may stand in themselves, many times over.
_REPR: Final = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, 4 * _SHOWN, 4 * _SHOWN
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = 30


def what_is_wrong(error: ErrorDetails, section: type[BaseModel]) -> str:
    """What a value must be, and where it is easily said, what to write instead; without its place and its name.

    ``error`` is one of a validation of ``section``, whose own checks speak for themselves.
    """
    field = find_field(section, error["loc"])
    match error["type"]:
        case "too_long" | "missing" if _holds_two_numbers(field):
            what = f"must be a list of two numbers{_instead(None, field)}"
        case "model_type" if len(error["loc"]) == 1:
            what = f"must be a section: write [{error['loc'][0]}] on a line of its own, and its keys below"
        case "tuple_type" if field is not None and find_section(field.annotation) is not None:
            what = f"must be a table of keys{_instead(None, field)}"  # one of the list may stand alone
        case kind if kind in _KINDS:
            called, better = _KINDS[kind]
            what = f"must be {called}{_instead(better(error['input']), field)}"
        case "missing":
            what = f"is missing and has no default{_instead(_section_head(field, error['loc']), field)}"
        case "literal_error":
            what = f"must be {_choice(str(error['ctx']['expected']), error['input'])}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            what = f"must be {_bounds(field, error.get('ctx', {}))}"
        case kind:
            what = _PHRASES.get(kind, error["msg"].removeprefix("Value error, "))
    return what


def shorten(value: object) -> str:
    """A value for a message, on one line: its beginning, where it is long."""
    try:
        text = _REPR.repr(value) if isinstance(value, dict | list | tuple | set | frozenset) else repr(value)
        shown = " ".join(line.strip() for line in text.splitlines())
    except (RecursionError, ValueError):  # of a stranger: nested too deep, or an integer of thousands of digits
        return f"{type(value).__name__} of no end"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def find_field(section: type[BaseModel], location: Iterable[str | int]) -> FieldInfo | None:
    """The field that a location of a validation error leads to; a number is a place in the list before it."""
    inner: Sequence[type[BaseModel]] = [section]
    field = None
    for part in location:
        if isinstance(part, int) or part.isdecimal():
            continue
        field = next((each.model_fields[part] for each in inner if part in each.model_fields), None)
        if field is None:
            return None
        found = find_section(field.annotation)
        # A setting of a model is looked for in the sections of all architectures.
        inner = [*architectures.SECTIONS.values()] if found is TransformerConfig else [found] if found else []
    return field


def find_setting(section: type[BaseModel], location: Sequence[str | int]) -> Setting | None:
    """The facts of the setting that a location leads to: those of a whole section count for all that is in it."""
    fields = (find_field(section, location[: depth + 1]) for depth in range(len(location)))
    return next((setting for field in fields if field is not None and (setting := facts(field)) is not None), None)


def find_section(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - types have no common type
    """The section that a field holds: itself, or one, or several of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(find_section, get_args(annotation))), None)


def _instead(better: str | None, field: FieldInfo | None) -> str:
    """What to write: the same in the right form, or an example."""
    if better is not None:
        return f": write {better}"
    if field is None:
        return ""
    example = next(iter(field.examples or ()), None if _is_blank(field.default) else field.default)
    return "" if example is None else f", such as {_toml(example)}"


def _is_blank(default: object) -> bool:
    # pydantic marks what has no default by a value that is neither text nor number
    return isinstance(default, bool) or not isinstance(default, str | int | float) or default == ""


def _toml(value: object) -> str:
    match value:
        case Mapping():
            return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | bool():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _whole(value: object) -> str | None:
    number = _number_of(value)
    return None if number is None or not number.is_integer() else str(int(number))


def _number(value: object) -> str | None:
    number = _number_of(value)
    return None if number is None else f"{number:.15g}"


def _number_of(value: object) -> float | None:
    """The number that somebody meant who wrote quotes, commas, or none of the zero before a point."""
    if isinstance(value, bool) or not isinstance(value, str | float):
        return None
    try:
        number = float(value.replace(",", "") if isinstance(value, str) else value)
    except ValueError:
        return None
    return number if abs(number) <= 2**53 else None  # which leaves nan out, too


def _truth(value: object) -> str | None:
    match str(value).lower():
        case "true" | "yes" | "on" | "1":
            return "true"
        case "false" | "no" | "off" | "0":
            return "false"
        case _:
            return None


def _quoted(value: object) -> str | None:
    return f'"{value}"' if isinstance(value, int | float) and not isinstance(value, bool) else None


def _section_head(field: FieldInfo | None, location: tuple[str | int, ...]) -> str | None:
    """How a whole section is written."""
    section = find_section(field.annotation) if field is not None and len(location) == 1 else None
    if section is None:
        return None
    needed = [name for name, inner in section.model_fields.items() if inner.is_required()]
    return f"[{location[0]}] on a line of its own, and below it {' and '.join(needed)}"


def _nothing(_: object) -> None:
    """There is no telling what was meant."""


# What each kind of value is called, and what somebody meant who wrote another.
_KINDS: Final[Mapping[str, tuple[str, Callable[[object], str | None]]]] = {
    "int_type": ("a whole number", _whole),
    "float_type": ("a number", _number),
    "bool_type": ("true or false", _truth),
    "string_type": ("text in quotes", _quoted),
    "tuple_type": ("a list", _nothing),
    "model_type": ("a table of keys", _nothing),
}
_PHRASES: Final[Mapping[str, str]] = {
    "finite_number": "must be a finite number, neither inf nor nan",
    "string_too_short": "must not be empty",
    "extra_forbidden": "unknown key",
}


def _holds_two_numbers(field: FieldInfo | None) -> bool:
    return field is not None and any(get_args(kind) == (int, int) for kind in get_args(field.annotation))


def _choice(expected: str, value: object) -> str:
    nearest = get_close_matches(str(value), re.findall(r"'([^']*)'", expected), n=1)
    return f"{expected}{f': did you mean {nearest[0]!r}?' if nearest else ''}"


def _bounds(field: FieldInfo | None, context: Mapping[str, Any]) -> str:
    """All bounds of the field, not only the one that the value is beyond."""
    constraints = field.metadata if field is not None else []
    found = {key: limit for each in constraints for key in _BOUNDS if (limit := getattr(each, key, None)) is not None}
    return " and ".join(f"{_BOUNDS[key]} {limit:,}" for key, limit in (found or context).items())
