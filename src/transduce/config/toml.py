"""Run files: TOML in and out, with errors that name the file, the line, the key and what to do."""

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ValidationError

from transduce.config.errors import BadInputError
from transduce.config.model import ModelConfig
from transduce.config.presets import PRESETS, preset
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
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: not a TOML file: {error}") from error
    data = table.get("data")
    if isinstance(data, dict):
        data["root"] = str((path.parent / str(data.get("root", "."))).resolve())
    given = [_parse_setting(setting) for setting in settings]
    # A preset given on the command line replaces the file's model, whatever the order of the settings.
    for key, value in sorted(given, key=lambda pair: pair[0] != "model.preset"):
        _apply(table, key, value)
    if isinstance(table.get("model"), dict):
        table["model"] = _expand_preset(table["model"], str(path))
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise BadInputError(_explain(error, path, text, {key for key, _ in given})) from error


def write_run(config: RunConfig, path: Path) -> None:
    """Write a run as resolved: every field, no blanks."""
    path.write_text(tomlkit.dumps(config.model_dump(exclude_none=True)), encoding="utf-8")


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise BadInputError(f"{path}: is a directory: give the run file inside it (run.toml in a run directory)")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such run file") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_setting(setting: str) -> tuple[str, object]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise BadInputError(f"--set {setting}: expected key=value, for example --set train.max_steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a bare word is a string
    if key.strip() == "data.root":
        parsed = str(Path(str(parsed)).resolve())
    return key.strip(), parsed


def _apply(table: Table, key: str, value: object) -> None:
    if key == "model.preset":
        table["model"] = {"preset": value}
        return
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise BadInputError(f"--set {key}: {section} is a value, not a section")
    table[last] = value


def _expand_preset(section: Table, place: str) -> Table:
    """The model section with the preset it names (base where it names none) written out."""
    if "vocab_size" in section:
        raise BadInputError(f"{place}: model.vocab_size follows from the tokenizer: set tokenizer.vocab_size instead")
    changes = dict(section)
    name = str(changes.pop("preset", "base"))
    if name not in PRESETS:
        raise BadInputError(f"{place}: model.preset = {name!r} is unknown: choose {', '.join(PRESETS)}")
    try:
        return preset(name, changes).model_dump()
    except ValidationError:
        return changes  # the whole run's validation names the field and its line


def _explain(error: ValidationError, path: Path, text: str, given: set[str]) -> str:
    """One line for the first of the errors: where it stands, what is wrong, what would be right."""
    first, *others = error.errors()
    location = tuple(str(part) for part in first["loc"])
    key = ".".join(location)
    place = f"--set {key}" if key in given else f"{path}{_line(text, location)}: {key}"
    match first["type"]:
        case "extra_forbidden":
            message = f"{place}: unknown key{_nearest(location)}"
        case "missing":
            message = f"{place}: is missing and has no default"
        case _:
            shown = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
            message = f"{place}{shown}: {first['msg'].removeprefix('Value error, ')}"
    return message + (f" (and {len(others)} more)" if others else "")


def _line(text: str, location: tuple[str, ...]) -> str:
    """Where a key stands: the line of the key itself, or of the innermost table that holds it."""
    header: tuple[str, ...] = ()
    found, depth = 0, 0
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            header = _dotted(stripped.strip("[]").partition("]")[0])
            names = header
        else:
            names = header + _dotted(stripped.partition("=")[0]) if "=" in stripped else ()
        if len(names) > depth and location[: len(names)] == names:
            found, depth = number, len(names)
    return f" line {found}" if found else ""


def _dotted(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))


def _nearest(location: tuple[str, ...]) -> str:
    *sections, unknown = location
    known = _fields(RunConfig, sections)
    nearest = get_close_matches(unknown, known, n=1)
    if nearest:
        return f": did you mean {'.'.join([*sections, nearest[0]])}?"
    return f": known are {', '.join(known)}" if known else ""


def _fields(model: type[BaseModel], sections: Iterable[str]) -> list[str]:
    for section in sections:
        field: Any = model.model_fields[section].annotation if section in model.model_fields else None
        if not (isinstance(field, type) and issubclass(field, BaseModel)):
            return []
        model = field
    return [*model.model_fields, *(["preset"] if model is ModelConfig else [])]
