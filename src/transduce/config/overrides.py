"""Settings on top of a run file's: ``--set key=value`` of the command line, or values by their keys."""

import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from transduce.config.errors import BadInputError
from transduce.config.keys import Table, current_key, enter

_log = logging.getLogger(__name__)


def apply_settings(table: Table, settings: Iterable[str] | Mapping[str, object]) -> list[str]:
    """Put settings into a table; return their keys.

    Raises:
        BadInputError: A line for each setting that is none, or leads to nothing that can be set.
    """
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise BadInputError(
            f'settings {settings!r}: a list of them belongs here, ["train.max_steps=500"], or a mapping, '
            f'{{"train.max_steps": 500}}'
        )
    given: list[tuple[str, object]] = []
    complaints: list[str] = []
    for setting in settings.items() if isinstance(settings, Mapping) else settings:
        try:
            given.append(_read_setting(*setting) if isinstance(setting, tuple) else _parse_setting(setting))
        except BadInputError as error:
            complaints += error.args
    # A preset given on the command line replaces the file's model, whatever the order of the settings.
    for key, value in sorted(given, key=lambda pair: pair[0] != "model.preset"):
        try:
            _apply(table, key, value)
        except BadInputError as error:
            complaints += error.args
    if complaints:
        raise BadInputError(*complaints)
    return [key for key, _ in given]


def resolve_root(root: str, folder: Path, place: Callable[[], str]) -> str:
    """A data folder as an absolute path; ``place`` says where the key stands, for an error.

    Raises:
        BadInputError: It is no path.
    """
    try:
        return str((folder / root).resolve())
    except ValueError as error:  # a NUL
        raise BadInputError(f"{place()} = {root!r} is no path: {error}") from error


def _read_setting(key: object, value: object) -> tuple[str, object]:
    """A value of Python, by its key."""
    if not isinstance(key, str) or not key:
        raise BadInputError(f'settings: {key!r} is no key, such as "train.max_steps"')
    plain = _as_toml(value)
    if key == "data.root" and isinstance(plain, str):
        plain = resolve_root(plain, Path(), lambda: "data.root")
    return current_key(key), plain


def _as_toml(value: object) -> object:
    """A value as a run file could have it."""
    match value:
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {key: _as_toml(each) for key, each in value.items()}
        case list() | tuple():
            return [_as_toml(each) for each in value]
        case _:
            return value


def _parse_setting(setting: str) -> tuple[str, object]:
    if not isinstance(setting, str):
        raise BadInputError(f'settings: {setting!r} is none, such as "train.max_steps=500"')
    key, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not key:
        raise BadInputError(f"--set {setting}: expected key=value, for example --set train.max_steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value  # a bare word is a string
    if key == "data.root":  # a folder 1.10 is no number
        root = parsed if isinstance(parsed, str) else value
        parsed = resolve_root(root, Path(), lambda: "--set data.root")
    return current_key(key), parsed


def _apply(table: Table, key: str, value: object) -> None:
    if value is None:
        _remove(table, key)
        return
    if key == "model.preset":
        replaced = table.get("model")
        if isinstance(replaced, dict) and (lost := sorted(replaced.keys() - {"preset"})):
            _log.warning(
                f"--set model.preset={value} replaces all of [model]: what the file says of {', '.join(lost)} is not "
                f"used; --set it again where it is meant"
            )
        table["model"] = {"preset": value}
        return
    *sections, last = key.split(".")
    inner: object = table
    for outer, section in zip(["", *sections], sections, strict=False):
        if isinstance(inner, dict):
            inner.setdefault(section, {})
        inner = enter(inner, section)
        if inner is None:
            raise BadInputError(f"--set {key}: {outer} has several tables: data.train.0 is the first of data.train")
        if not isinstance(inner, dict | list):
            raise BadInputError(f"--set {key}: {section} is a value, not a section")
    if not isinstance(inner, dict):
        raise BadInputError(f"--set {key}: {sections[-1]} has several tables: {'.'.join(sections)}.0 is the first")
    inner[last] = value


def _remove(table: Table, key: str) -> None:
    """Leave a table as if nobody had set that key."""
    *sections, last = key.split(".")
    inner: object = table
    for section in sections:
        inner = enter(inner, section)
    if isinstance(inner, dict):
        inner.pop(last, None)
