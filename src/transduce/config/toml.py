"""Run files: TOML in and out, with errors that name the file, the line, the key and what to do."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import tomlkit
from pydantic import BaseModel, ValidationError

from transduce.config.disk import write_whole
from transduce.config.errors import BadInputError
from transduce.config.model import VOCABULARY_SIZES, ModelConfig
from transduce.config.presets import PRESETS, PUBLISHED, preset
from transduce.config.run import RunConfig

Table = dict[str, Any]


def read_run(path: Path, settings: Iterable[str] = ()) -> RunConfig:
    """Read a run file and apply ``key=value`` settings on top of it.

    ``data.root`` comes out absolute: the file's is relative to the file, a setting's to the working folder.

    Raises:
        BadInputError: The file cannot be read, is no TOML, or a key or value is wrong.
    """
    text = _read_text(path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # besides its own, those of numbers and nests beyond measure
        raise BadInputError(f"{path}: not a TOML file: {error}") from error
    given = [_parse_setting(setting) for setting in settings]
    # A preset given on the command line replaces the file's model, whatever the order of the settings.
    for key, value in sorted(given, key=lambda pair: pair[0] != "model.preset"):
        _apply(table, key, value)
    origin = _Origin(path, text, frozenset(key for key, _ in given))
    data = table.get("data")
    if isinstance(data, dict) and isinstance(root := data.get("root", "."), str):
        data["root"] = _resolve(root, path.parent, origin.place(("data", "root")))
    if isinstance(table.get("model"), dict):
        table = _expand_preset(table, table["model"], origin)
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise BadInputError(_explain(error, origin, table)) from error


def write_run(config: RunConfig, path: Path) -> None:
    """Write a run as resolved: every field, no blanks (but the model's vocabulary, whose size is the tokenizer's)."""
    fields = config.model_dump(exclude_none=True, exclude={"model": set(VOCABULARY_SIZES)})
    write_whole(path, tomlkit.dumps(fields))


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise BadInputError(f"{path}: is a directory: give the run file inside it (run.toml in a run directory)")
    try:
        return path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark first
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such run file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadInputError(
            f"{path} line {line}: not UTF-8 text (byte 0x{error.object[error.start]:02x}): convert the file to UTF-8"
        ) from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_setting(setting: str) -> tuple[str, object]:
    key, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not key:
        raise BadInputError(f"--set {setting}: expected key=value, for example --set train.max_steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value  # a bare word is a string
    if key == "data.root":
        parsed = _resolve(str(parsed), Path(), "--set data.root")
    return key, parsed


def _resolve(root: str, folder: Path, place: str) -> str:
    try:
        return str((folder / root).resolve())
    except ValueError as error:  # a NUL
        raise BadInputError(f"{place} = {root!r} is no path: {error}") from error


def _apply(table: Table, key: str, value: object) -> None:
    if key == "model.preset":
        table["model"] = {"preset": value}
        return
    *sections, last = key.split(".")
    inner: object = table
    for outer, section in zip(["", *sections], sections, strict=False):
        if isinstance(inner, dict):
            inner.setdefault(section, {})
        inner = _enter(inner, section)
        if inner is None:
            raise BadInputError(f"--set {key}: {outer} has several tables: data.train.0 is the first of data.train")
        if not isinstance(inner, dict | list):
            raise BadInputError(f"--set {key}: {section} is a value, not a section")
    if not isinstance(inner, dict):
        raise BadInputError(f"--set {key}: {sections[-1]} has several tables: {'.'.join(sections)}.0 is the first")
    inner[last] = value


def _enter(table: object, name: str) -> object:
    """What stands under a name in a table, or under a number in a list of tables; None where nothing does."""
    if isinstance(table, list):
        return table[int(name)] if name.isdecimal() and int(name) < len(table) else None
    return table.get(name) if isinstance(table, dict) else None


def _expand_preset(table: Table, section: Table, origin: "_Origin") -> Table:
    """The run with the preset that its model section names (base where it names none) written out in all sections."""
    for name in sorted(VOCABULARY_SIZES & section.keys()):
        place = origin.place(("model", name))
        raise BadInputError(f"{place} follows from the tokenizer: set tokenizer.vocab_size instead")
    changes = dict(section)
    name = str(changes.pop("preset", "base"))
    if name not in PRESETS:
        place = origin.place(("model", "preset"))
        raise BadInputError(f"{place} = {name!r} is unknown: choose {', '.join(PRESETS)}")
    try:
        expanded = table | {"model": preset(name, changes).model_dump()}
    except ValidationError:
        return table | {"model": changes}  # the whole run's validation names the field and its line
    for other, regime in PUBLISHED[name].regime.items():
        given = expanded.get(other, {})
        expanded[other] = {**regime, **given} if isinstance(given, dict) else given
    return expanded


@dataclass(frozen=True)
class _Origin:
    """Where a run's values came from: a file's text, and the keys that the command line set."""

    path: Path
    text: str
    given: frozenset[str]

    def place(self, location: tuple[str, ...]) -> str:
        """Where a key stands, and its name: on the command line, or in a line of the file."""
        key = ".".join(location)
        line, depth = _line(self.text, location)
        for setting in sorted(self.given):
            deeper = depth < len(location) and setting.startswith(f"{key}.")
            if setting == key or deeper:
                return f"--set {setting}"
            if key.startswith(f"{setting}."):
                return f"--set {setting}: {key}"
        return f"{self.path}{f' line {line}' if line else ''}: {key}"


def _explain(error: ValidationError, origin: _Origin, table: Table) -> str:
    """One line for the first of the errors: where it stands, what is wrong, what would be right."""
    # A key that is misspelled is wrong; that the right one is missing only follows from it.
    first, *others = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    location = _as_written(tuple(str(part) for part in first["loc"]), table)
    place = origin.place(location)
    match first["type"]:
        case "extra_forbidden":
            message = f"{place}: unknown key{_nearest(location)}"
        case "missing":
            message = f"{place}: is missing and has no default"
        case _:
            shown = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
            message = f"{place}{shown}: {first['msg'].removeprefix('Value error, ')}"
    # A quoted key may hold line ends.
    return " ".join(message.splitlines()) + (f" (and {len(others)} more)" if others else "")


def _as_written(location: tuple[str, ...], table: object) -> tuple[str, ...]:
    """A location as the file has it: a corpus that stands alone has no number there."""
    if not location:
        return ()
    name, *rest = location
    if name.isdecimal() and isinstance(table, dict) and name not in table:
        return _as_written(tuple(rest), table)
    return (name, *_as_written(tuple(rest), _enter(table, name)))


def _line(text: str, location: tuple[str, ...]) -> tuple[int, int]:
    """The line that brings a key, or the innermost table of those that hold it; and how deep that is."""
    lines = text.split("\n")
    found, depth = 0, 0
    for number in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:number]) + "\n")
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        if (reached := _depth(table, location)) > depth:
            found, depth = number, reached
    return found, depth


def _depth(table: object, location: tuple[str, ...]) -> int:
    """How many of a location's names lead somewhere."""
    if location and (inner := _enter(table, location[0])) is not None:
        return 1 + _depth(inner, location[1:])
    return 0


def _nearest(location: tuple[str, ...]) -> str:
    *sections, unknown = location
    known = _fields(RunConfig, sections)
    nearest = get_close_matches(unknown, known, n=1)
    if nearest:
        return f": did you mean {'.'.join([*sections, nearest[0]])}?"
    return f": known are {', '.join(known)}" if known else ""


def _fields(model: type[BaseModel], sections: Iterable[str]) -> list[str]:
    for section in sections:
        if section.isdecimal():
            continue  # one of several tables
        if section not in model.model_fields or (inner := _section(model.model_fields[section].annotation)) is None:
            return []
        model = inner
    return [*model.model_fields, *(["preset"] if model is ModelConfig else [])]


def _section(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - types have no common type
    """The section that a field holds: itself, or one, or several of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section, get_args(annotation))), None)
