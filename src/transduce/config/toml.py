"""Run files: TOML in and out, with errors that name the file, the line, the key and what to do."""

import logging
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import tomlkit
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from transduce.config.disk import write_whole
from transduce.config.errors import BadInputError
from transduce.config.inherit import Inherited, inherit
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.presets import PRESETS, PUBLISHED
from transduce.config.run import RunConfig
from transduce.config.section import former_names
from transduce.config.values import find_field, find_section, shorten, what_is_wrong

_log = logging.getLogger(__name__)

_MOST_ERRORS: Final = 20  # are shown
_BASE: Final = "base"  # what a model is that names no preset

# What other toolkits call it.
_OTHER_WORDS: Final = {
    **dict.fromkeys(
        ("epochs", "max_epochs", "num_epochs", "num_train_epochs"),
        "train.max_steps (doctor says how many epochs they are)",
    ),
    **dict.fromkeys(("lr", "learn_rate"), "train.learning_rate"),
    **dict.fromkeys(("hidden_size", "embed_dim", "embedding_size", "dim_emb", "width"), "model.d_model"),
    **dict.fromkeys(("ffn_dim", "ffn_size", "intermediate_size", "dim_feedforward"), "model.d_ff"),
    **dict.fromkeys(("depth", "enc_depth"), "model.encoder_layers"),
    "dec_depth": "model.decoder_layers",
    "patience": "train.early_stop",
}

Table = dict[str, Any]
Location = tuple[str, ...]


def read_run(path: Path, settings: Iterable[str] = (), inherited: Inherited | None = None) -> RunConfig:
    """Read a run file and apply ``key=value`` settings on top of it; what it leaves out may be ``inherited``.

    ``data.root`` comes out absolute: the file's is relative to the file, a setting's to the working folder.

    Raises:
        BadInputError: The file cannot be read, is no TOML, or keys or values are wrong: one line for each of them.
    """
    text = _read_text(path)
    try:
        table = _load(text)
    except (ValueError, RecursionError) as error:  # besides its own, those of numbers and nests beyond measure
        raise BadInputError(f"{path}: not a TOML file: {error}{_advise(text, str(error))}") from error
    given = _apply_settings(table, settings)
    origin = _Origin(path, text, frozenset(given), table)
    data = table.get("data")
    if isinstance(data, dict) and isinstance(root := data.get("root", "."), str):
        data["root"] = _resolve(root, path.parent, origin.place(("data", "root")))
    if inherited is not None:
        origin = replace(origin, table=inherit(table, inherited, origin.place))
    complaints = [*_check_preset(origin), *(_explain(error, origin) for error in _find_errors(origin))]
    if not complaints:
        return RunConfig.model_validate(origin.expanded)
    more = [f"{path}: and {len(complaints) - _MOST_ERRORS:,} more"] if len(complaints) > _MOST_ERRORS else []
    raise BadInputError(*complaints[:_MOST_ERRORS], *more)


def write_run(config: RunConfig, path: Path) -> None:
    """Write a run as resolved: every field, no blanks (but the model's vocabulary, whose size is the tokenizer's)."""
    fields = config.model_dump(exclude_none=True, exclude={"model": set(VOCABULARY_SIZES)})
    write_whole(path, tomlkit.dumps(fields))


def current_key(key: str) -> str:
    """The dotted key of a setting, which may be given by a name that it had in an older version."""
    location: Location = ()
    for name in key.split("."):
        section = _section(location)
        location = (*location, name if section is None else former_names(section).get(name, name))
    return ".".join(location)


def _load(text: str) -> Table:
    table: Table = _rename(tomllib.loads(text), RunConfig)
    return table


def _rename(value: Any, section: type[BaseModel] | None) -> Any:  # noqa: ANN401 - whatever TOML may hold
    """A table, or a list of tables, with the present names of all settings.

    One that stands there by both names is left: the section complains about it.
    """
    if section is None or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_rename(each, section) for each in value]
    former, fields = former_names(section), section.model_fields
    renamed = {}
    for key, inner in value.items():
        name = key if former.get(key, key) in value else former[key]
        renamed[name] = _rename(inner, find_section(fields[name].annotation) if name in fields else None)
    return renamed


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


def _advise(text: str, error: str) -> str:
    """The line that is no TOML, and what is most often wrong with one: a word without quotes."""
    if (place := re.search(r"at line (\d+)", error)) is None:
        return ""
    lines = text.split("\n")
    line = lines[min(int(place[1]), len(lines)) - 1].strip()
    advice = ""
    if bare := re.fullmatch(r"([\w.-]+ *= *)([^\W\d][\w ./-]*?) *(#.*)?", line):
        key, word = bare[1], bare[2]
        quoted = word.lower() if word.lower() in {"true", "false"} else f'"{word}"'
        advice = f": write {key}{quoted}"
    return f": {shorten(line)}{advice}"


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
    return current_key(key), parsed


def _resolve(root: str, folder: Path, place: str) -> str:
    try:
        return str((folder / root).resolve())
    except ValueError as error:  # a NUL
        raise BadInputError(f"{place} = {root!r} is no path: {error}") from error


def _apply_settings(table: Table, settings: Iterable[str]) -> list[str]:
    """Put settings into a table; return their keys."""
    given: list[tuple[str, object]] = []
    complaints: list[str] = []
    for setting in settings:
        try:
            given.append(_parse_setting(setting))
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


def _apply(table: Table, key: str, value: object) -> None:
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


def _check_preset(origin: "_Origin") -> Iterator[str]:
    """What is wrong with a model section before it is one."""
    section = origin.table.get("model")
    if not isinstance(section, dict):
        return
    for name in sorted(VOCABULARY_SIZES & section.keys()):
        place = origin.place(("model", name))
        yield f"{place} follows from the tokenizer: set tokenizer.vocab_size instead"
    if origin.preset is None:
        wrong = section["preset"]
        nearest = get_close_matches(str(wrong), PRESETS, n=1)
        advice = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        place = origin.place(("model", "preset"))
        yield f"{place} = {shorten(wrong)} is unknown: choose {', '.join(PRESETS)}{advice}"


@dataclass(frozen=True)
class _Origin:
    """Where a run's values came from: a file's text, the keys that the command line set, and a preset.

    ``table`` is what the first two say together.
    """

    path: Path
    text: str
    given: frozenset[str]
    table: Table

    @property
    def preset(self) -> str | None:
        """The preset that the model is made from; none where an unknown one is named."""
        section = self.table.get("model")
        name = section.get("preset", _BASE) if isinstance(section, dict) else _BASE
        return name if isinstance(name, str) and name in PRESETS else None

    @property
    def from_preset(self) -> Mapping[str, Mapping[str, Any]]:
        """What the preset says of each section."""
        if self.preset is None or not isinstance(self.table.get("model", {}), dict):
            return {}
        published = PUBLISHED[self.preset]
        return {"model": published.model, **published.regime}

    @property
    def expanded(self) -> Table:
        """The run with its preset written out in all sections: what was asked for, right or wrong."""
        expanded = dict(self.table)
        if isinstance(section := expanded.get("model"), dict):
            expanded["model"] = {key: section[key] for key in section if key not in {"preset", *VOCABULARY_SIZES}}
        for name, fields in self.from_preset.items():
            given = expanded.get(name, {})
            if isinstance(given, dict) and "learning_rate" in given:
                # A rate of one's own takes the place of the preset's schedule, and so of its factor.
                given = {"learning_rate_factor": 1.0, **given}
            expanded[name] = {**fields, **given} if isinstance(given, dict) else given
        return expanded

    def place(self, location: Location) -> str:
        """Where a key stands, and its name: on the command line, or in a line of the file."""
        key = ".".join(location)
        line, depth = self._line(location)
        for setting in sorted(self.given):
            deeper = depth < len(location) and setting.startswith(f"{key}.")
            if setting == key or deeper:
                return f"--set {setting}"
            if key.startswith(f"{setting}."):
                return f"--set {setting}: {key}"
        where = f"{self.path}{f' line {line}' if line else ''}"
        return f"{where}: {key}" if key else where

    def place_of_all(self, location: Location, names: Iterable[str]) -> str:
        """Where a section stands of which these keys do not fit each other: those that the command line set, if any."""
        keys = [".".join((*location, name)) for name in names]
        return " and ".join(f"--set {key}" for key in keys if key in self.given) or self.place(location)

    def remark(self, location: Location, name: str, value: str) -> str | None:
        """Where a value came from that the section itself does not have: a preset, or the defaults."""
        *sections, key = *location, *name.split(".")
        field = find_field(RunConfig, (*sections, key))
        if field is None or _depth(self.table, (*sections, key)) > len(sections):
            return None
        from_preset = self.from_preset.get(".".join(sections), {})
        if key in from_preset and repr(from_preset[key]) == value:
            return f"{name} = {value} comes from the preset {self.preset!r}"
        return f"{name} = {value} is the default" if repr(field.default) == value else None

    def line(self, location: Location) -> int:
        """The line of the file that brings a key; 0 where the command line does, or nothing."""
        return 0 if self.place(location).startswith("--set") else self._line(location)[0]

    @cached_property
    def _prefixes(self) -> list[tuple[int, Table]]:
        """What the file says up to each of its lines that ends a value."""
        lines, prefixes = self.text.split("\n"), []
        for number in range(1, len(lines) + 1):
            try:
                prefixes.append((number, _load("\n".join(lines[:number]) + "\n")))
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a value
        return prefixes

    def _line(self, location: Location) -> tuple[int, int]:
        """The line that brings a key, or the innermost table of those that hold it; and how deep that is."""
        found, depth = 0, 0
        for number, table in self._prefixes:
            if (reached := _depth(table, location)) > depth:
                found, depth = number, reached
        return found, depth


def _find_errors(origin: _Origin) -> list[ErrorDetails]:
    """All that is wrong with a run's keys and values, in the file's order."""
    table = origin.expanded
    errors, unsure = _validate(table), set[str]()
    for each in errors:
        location = _as_written(each["loc"], table)
        if each["type"] == "extra_forbidden":
            unsure.add(_nearest_key(location) or "")
        if location and each["type"] != "missing":
            unsure.add(location[-1])
            _remove(table := deepcopy(table), location)
    # A section's own checks come behind those of its fields: they are heard without what is wrong already, unless they
    # speak of just that.
    known = {(each["loc"], each["msg"]) for each in errors}
    errors += [
        each
        for each in _validate(table)
        if each["type"] == "value_error"
        and (each["loc"], each["msg"]) not in known
        and unsure.isdisjoint(re.findall(r"\w+", each["msg"].replace("-", "_")))
    ]
    if origin.preset is None:  # what a model's fields have to do with each other, nobody knows
        errors = [each for each in errors if each["loc"] not in {(), ("model",)}]
    # That a key is missing follows from its misspelling.
    errors = [each for each in errors if each["type"] != "missing" or each["loc"][-1] not in unsure]
    return sorted(errors, key=lambda each: origin.line(_as_written(each["loc"], origin.table)))


def _validate(table: Table) -> list[ErrorDetails]:
    try:
        RunConfig.model_validate(table)
    except ValidationError as error:
        return error.errors()
    return []


def _remove(table: Table, location: Location) -> None:
    """Take a key out of a table, if it is there."""
    *sections, key = location or ("",)
    inner: object = table
    for section in sections:
        inner = _enter(inner, section)
    if isinstance(inner, dict):
        inner.pop(key, None)


def _explain(error: ErrorDetails, origin: _Origin) -> str:
    """One line: where it stands, what is wrong, what would be right."""
    location = _as_written(error["loc"], origin.table)
    what = what_is_wrong(error, RunConfig)
    if error["type"] == "extra_forbidden":
        message = f"{origin.place(location)}: {what}{_nearest(location)}"
    elif isinstance(error["input"], dict):
        named = re.findall(r"([\w.]+) = ('[^']*'|[^\s:,;]+)", what)
        place = origin.place_of_all(location, dict.fromkeys(name for name, _ in named))
        remarks = filter(None, (origin.remark(location, *pair) for pair in dict.fromkeys(named)))
        message = f"{place}: {what}{f' ({said})' if (said := '; '.join(remarks)) else ''}"
    else:
        message = f"{origin.place(location)} = {shorten(error['input'])}: {what}"
    return " ".join(message.splitlines())  # a quoted key may hold line ends


def _as_written(location: Sequence[str | int], table: object) -> Location:
    """A location as the file has it: a corpus that stands alone has no number there."""
    if not location:
        return ()
    name, *rest = map(str, location)
    if name.isdecimal() and isinstance(table, dict) and name not in table:
        return _as_written(tuple(rest), table)
    return (name, *_as_written(tuple(rest), _enter(table, name)))


def _depth(table: object, location: Location) -> int:
    """How many of a location's names lead somewhere."""
    if location and (inner := _enter(table, location[0])) is not None:
        return 1 + _depth(inner, location[1:])
    return 0


def _nearest(location: Location) -> str:
    """What somebody meant who wrote an unknown key."""
    *sections, unknown = location
    if homes := [*_homes(unknown, sections)]:
        return f": it belongs into {' or '.join(homes)}"
    if (nearest := _nearest_key(location)) is not None:
        return f": did you mean {'.'.join([*sections, nearest])}?"
    if unknown in _OTHER_WORDS:
        return f": did you mean {_OTHER_WORDS[unknown]}?"
    if unknown in RunConfig.model_fields:
        return f": it is a section of its own, [{unknown}]"
    known = _fields(sections)
    return f": known are {', '.join(known)}" if known else ""


def _homes(key: str, sections: Sequence[str]) -> Iterator[str]:
    """The tables that know a key: those within such a section, or else the other sections."""
    inner = [name for name in _fields(sections) if sections and key in _fields((*sections, name))]
    yield from (".".join((*sections, name)) for name in inner)
    if not inner and len(sections) < 2:
        yield from (f"[{name}]" for name in RunConfig.model_fields if [name] != sections and key in _own_fields(name))


def _own_fields(section: str) -> list[str]:
    # [tokenizer] and the corpora have tables called source and target, which say nothing of what they mean elsewhere
    return [name for name in _fields((section,)) if find_section(_annotation((section, name))) is None]


def _annotation(location: Location) -> Any:  # noqa: ANN401 - types have no common type
    field = find_field(RunConfig, location)
    return None if field is None else field.annotation


def _nearest_key(location: Location) -> str | None:
    *sections, unknown = location
    return next(iter(get_close_matches(unknown, _fields(sections), n=1)), None)


def _fields(sections: Sequence[str]) -> list[str]:
    """The keys that the section at such a place may have."""
    section = _section(sections)
    if section is None:
        return []
    if [*sections] == ["model"]:
        return [*(name for name in section.model_fields if name not in VOCABULARY_SIZES), "preset"]
    return [*section.model_fields]


def _section(location: Iterable[str]) -> type[BaseModel] | None:
    """The section at such a place of a run file, if there is one."""
    section: type[BaseModel] | None = RunConfig
    for name in location:
        if name.isdecimal():
            continue  # one of several tables
        if section is None or name not in section.model_fields:
            return None
        section = find_section(section.model_fields[name].annotation)
    return section
