"""Keys of a run file: the names that they had before, the sections that they lead to, and what stands there."""

import tomllib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from transduce.config.run import RunConfig
from transduce.config.section import former_names
from transduce.config.values import find_section

Table = dict[str, Any]
Location = tuple[str, ...]


def parse(text: str) -> Table:
    """The tables of a run file, all keys by their present names.

    Raises:
        ValueError: It is no TOML, or has a number or a string beyond measure.
        RecursionError: Its tables lie too deep in each other.
    """
    table: Table = _with_present_names(tomllib.loads(text), RunConfig)
    return table


def current_key(key: str) -> str:
    """The present dotted key of a setting, which may be given by a name that it had in an older version."""
    location: Location = ()
    for name in key.split("."):
        section = section_at(location)
        location = (*location, name if section is None else former_names(section).get(name, name))
    return ".".join(location)


def section_at(location: Iterable[str]) -> type[BaseModel] | None:
    """The section at such a place of a run file, if there is one."""
    section: type[BaseModel] | None = RunConfig
    for name in location:
        if name.isdecimal():
            continue  # one of several tables
        if section is None or name not in section.model_fields:
            return None
        section = find_section(section.model_fields[name].annotation)
    return section


def enter(table: object, name: str) -> object:
    """What stands under a name in a table, or under a number in a list of tables; None where nothing does."""
    if isinstance(table, list):
        return table[int(name)] if name.isdecimal() and int(name) < len(table) else None
    return table.get(name) if isinstance(table, dict) else None


def depth_of(table: object, location: Location) -> int:
    """How many of a location's names lead somewhere."""
    if location and (inner := enter(table, location[0])) is not None:
        return 1 + depth_of(inner, location[1:])
    return 0


def _with_present_names(value: Any, section: type[BaseModel] | None) -> Any:  # noqa: ANN401 - whatever TOML may hold
    """A table, or a list of tables, with the present names of all settings.

    One that stands there by both names is left: the section complains about it.
    """
    if section is None or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_with_present_names(each, section) for each in value]
    former, fields = former_names(section), section.model_fields
    renamed = {}
    for key, inner in value.items():
        name = key if former.get(key, key) in value else former[key]
        renamed[name] = _with_present_names(inner, find_section(fields[name].annotation) if name in fields else None)
    return renamed
