"""API keys: who may call, and how often. A file holds their hashes, never the keys."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError
from transduce.config.disk import write_whole

_NAME: Final = re.compile(r"[\w.@-]+")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_COLUMNS: Final = 3


@final
@dataclass(frozen=True)
class ApiKey:
    """Whose it is, the SHA-256 of it, and how many requests a minute it may make (``None``: any number).

    Keys are 256 random bits, so that a plain hash cannot be turned back by guessing.
    """

    name: str
    sha256: str
    rate: int | None


def find_key(keys: tuple[ApiKey, ...], given: str) -> ApiKey | None:
    """Whose key it is; how long that takes says nothing about the keys there are."""
    sha256 = _hash(given)
    found = None
    for key in keys:
        if hmac.compare_digest(key.sha256, sha256):
            found = key
    return found


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a file: a line each with name, requests a minute (or ``-``) and hash.

    Raises:
        BadInputError: It cannot be read, or a line is none of these; line and cause are named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}; --add-key NAME makes a first key") from error
    return tuple(
        _read_line(path, number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    )


def _read_line(path: Path, number: int, line: str) -> ApiKey:
    parts = line.split()
    if len(parts) != _COLUMNS:
        raise BadInputError(f"{path} line {number}: has not name, requests a minute (or -) and hash")
    name, rate, sha256 = parts
    if rate != "-" and not (rate.isdecimal() and int(rate) > 0):
        raise BadInputError(f"{path} line {number}: {rate!r} is no number of requests a minute, nor -")
    if not _HASH.fullmatch(sha256):
        raise BadInputError(f"{path} line {number}: the last part is no SHA-256 in 64 hexadecimal digits")
    return ApiKey(name, sha256, None if rate == "-" else int(rate))


def add_key(path: Path, name: str, rate: int | None) -> str:
    """Make a key and write its hash behind those of the file; the key itself is only given back.

    Raises:
        BadInputError: The name is taken, or none; or the file cannot be read.
    """
    keys = read_keys(path) if path.exists() else ()
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is no name of a key: letters, digits and . @ _ - only")
    if name in (key.name for key in keys):
        raise BadInputError(f"{path}: has a key of {name} already: remove its line first")
    given = secrets.token_urlsafe(32)
    before = path.read_text(encoding="utf-8") if path.exists() else "# name, requests a minute, SHA-256 of the key\n"
    end = "" if before.endswith("\n") else "\n"
    write_whole(path, f"{before}{end}{name} {rate or '-'} {_hash(given)}\n")
    return given


def _hash(given: str) -> str:
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()
