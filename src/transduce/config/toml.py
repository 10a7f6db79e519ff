"""Run files: TOML in and out, with errors that name the file, the line, the key and what to do."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import tomlkit

from transduce.config.complaints import find_complaints
from transduce.config.disk import write_whole
from transduce.config.errors import BadInputError
from transduce.config.inherit import Inherited, inherit
from transduce.config.keys import parse
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.origin import Origin
from transduce.config.overrides import apply_settings, resolve_root
from transduce.config.run import RunConfig
from transduce.config.values import shorten

_MOST_ERRORS: Final = 20  # are shown


def read_run(
    path: str | os.PathLike[str],
    settings: Iterable[str] | Mapping[str, object] = (),
    inherited: Inherited | None = None,
) -> RunConfig:
    """Read a run file and apply settings on top of it; what it leaves out may be ``inherited``.

    Settings are ``"KEY=VALUE"`` each, as of ``--set``, or values by their keys, where None leaves a key out.
    ``data.root`` comes out absolute: the file's is relative to the file, a setting's to the working folder.

    Raises:
        BadInputError: The file cannot be read, is no TOML, or keys or values are wrong: one line for each of them.
    """
    path = Path(path)
    text = _read_text(path)
    try:
        table = parse(text)
    except (ValueError, RecursionError) as error:  # besides its own, those of numbers and nests beyond measure
        raise BadInputError(f"{path}: not a TOML file: {error}{_advise(text, str(error))}") from error
    given = apply_settings(table, settings)
    origin = Origin(path, text, frozenset(given), table)
    data = table.get("data")
    if isinstance(data, dict) and isinstance(root := data.get("root", "."), str):
        data["root"] = resolve_root(root, path.parent, lambda: origin.place(("data", "root")))
    if inherited is not None:
        origin = replace(origin, table=inherit(table, inherited, origin.place))
    complaints = find_complaints(origin)
    if not complaints:
        return RunConfig.model_validate(origin.expanded)
    more = [f"{path}: and {len(complaints) - _MOST_ERRORS:,} more"] if len(complaints) > _MOST_ERRORS else []
    raise BadInputError(*complaints[:_MOST_ERRORS], *more)


def write_run(config: RunConfig, path: str | os.PathLike[str]) -> None:
    """Write a run as resolved: every field, no blanks (but the model's vocabulary, whose size is the tokenizer's)."""
    fields = config.model_dump(exclude_none=True, exclude={"model": set(VOCABULARY_SIZES)})
    write_whole(Path(path), tomlkit.dumps(fields))


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
