"""The manifest of a checkpoint: the size and the sha256 of its files, to know them by when they are read."""

import hashlib
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from transduce.config import BadInputError
from transduce.config.disk import write_flushed

MANIFEST: Final = "manifest.json"


class Entry(BaseModel):
    """What is known of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


_ENTRIES: Final = TypeAdapter(dict[str, Entry])


def write_manifest(folder: Path) -> None:
    """Describe the files of a folder in one more."""
    entries = {path.name: _describe(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    write_flushed(folder / MANIFEST, _ENTRIES.dump_json(entries, indent=2).decode() + "\n")


def check_files(folder: Path, *names: str) -> bool:
    """See that files are what was written; whether there is a manifest to tell: older versions wrote none.

    Raises:
        BadInputError: A file or the manifest is missing or damaged; it is named.
    """
    path = folder / MANIFEST
    try:
        entries = _ENTRIES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValidationError) as error:
        raise BadInputError(f"{path}: damaged checkpoint: {error}".splitlines()[0]) from error
    for name in names:
        try:
            found = _describe(folder / name)
        except OSError as error:
            raise BadInputError(f"{folder / name}: damaged checkpoint: {error.strerror}") from error
        if difference := _differ(found, entries.get(name)):
            raise BadInputError(f"{folder / name}: damaged checkpoint: {difference}")
    return True


def _describe(path: Path) -> Entry:
    with path.open("rb") as stream:
        return Entry(bytes=path.stat().st_size, sha256=hashlib.file_digest(stream, "sha256").hexdigest())


def _differ(found: Entry, wanted: Entry | None) -> str | None:
    if wanted is None:
        return f"{MANIFEST} does not name it"
    if found.bytes != wanted.bytes:
        return f"{found.bytes:,} bytes instead of {wanted.bytes:,}"
    return None if found == wanted else f"its sha256 is not that in {MANIFEST}"
