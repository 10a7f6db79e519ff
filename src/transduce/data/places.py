"""Files wherever they lie: on this machine, or on an object store that pyarrow's file systems know (``s3://``, ``gs://``).

A place is what a person writes: a path, or an address with a scheme.
"""

import io
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast, final
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from transduce.config import BadInputError
from transduce.config.disk import flush
from transduce.data.lines import open_binary

_SCHEME: Final = "://"
# Spark, Hive and pyarrow pass over names that begin so: what is unfinished, or about the folder.
_HIDDEN: Final = (".", "_")
_PACKED: Final = {".gz": "gzip", ".zst": "zstd"}
UNFINISHED: Final = ".unfinished"
# What Hadoop, Spark and many others write last into a folder that is whole.
SUCCESS: Final = "_SUCCESS"


@final
@dataclass(frozen=True)
class FoundFile:
    """A file: its place, its name below the folder that was searched, and its size in bytes.

    ``stem`` is what of its name the pattern leaves open: parallel files have it in common (``7`` of ``en/*.en``).
    """

    place: str
    name: str
    size: int
    stem: str = ""


@final
@dataclass(frozen=True)
class Listing:
    """The files that a pattern means at this moment, sorted by name, and whether more may come."""

    files: list[FoundFile]
    whole: bool  # a file of that name, or a folder that has _SUCCESS


def is_address(place: str) -> bool:
    """Whether it names a file system too, and is no path of this machine."""
    return _SCHEME in place


def is_hidden(name: str) -> bool:
    """Whether a name below a folder is passed over: it, or a folder on the way, begins with a dot or an underscore."""
    return any(part.startswith(_HIDDEN) for part in name.split("/"))


def find_files(pattern: str) -> list[FoundFile]:
    """The files that are meant, sorted by name: one file, all of a folder and the folders in it, or those that match.

    In a pattern, ``*`` stands for any part of a name, ``?`` for a character (of paths only: in an address it begins the
    settings of the store), ``[ab]`` for one of several, and ``**`` for folders. Hidden names are passed over.

    Raises:
        BadInputError: There are none, or the place cannot be read.
    """
    listing = list_files(pattern)
    if not listing.files:
        exists = bool(_split(pattern)[1]) or _information(pattern).type == fs.FileType.Directory
        raise BadInputError(
            f"{pattern}: no file matches (.NAME and _NAME are passed over)"
            if exists
            else f"{pattern}: no such file or folder"
        )
    return listing.files


def list_files(pattern: str) -> Listing:
    """``find_files``, of which there may be none yet.

    Raises:
        BadInputError: The place cannot be read, or the pattern is none.
    """
    folder, wanted = _split(pattern)
    if not (wanted and is_address(pattern)):  # no address has such characters; the name of a file may
        exact = _information(pattern)
        if exact.type == fs.FileType.File:
            return Listing([FoundFile(pattern, exact.base_name, exact.size)], whole=True)
        if exact.type == fs.FileType.Directory:
            folder, wanted = pattern, "**"
    if not wanted:
        return Listing([], whole=False)
    try:
        expression = re.compile(_expression(wanted))
    except re.error as error:
        raise BadInputError(
            f"{pattern}: no pattern of names ({error}): [ab] and [a-z] stand for a character"
        ) from error
    names = list_names(folder)
    if SUCCESS in names:  # it was written behind all others, and seen perhaps before some of them
        names = list_names(folder)
    found = [
        FoundFile(join(folder, name), name, size, "/".join(match.groups()))
        for name, size in names.items()
        if (match := expression.fullmatch(name)) and not is_hidden(name)
    ]
    return Listing(sorted(found, key=lambda file: file.name.split("/")), SUCCESS in names)


def _split(pattern: str) -> tuple[str, str]:
    """The folder before the first wild card, and the rest; without any, there is no rest."""
    scheme, separator, rest = pattern.rpartition(_SCHEME)
    rest, mark, settings = rest.partition("?") if separator else (rest, "", "")
    parts = rest.split("/")
    first = next((index for index, part in enumerate(parts) if any(each in part for each in "*?[")), None)
    if first is None:
        return pattern, ""
    folder = "/".join(parts[:first]) or ("/" if rest.startswith("/") else ".")
    return scheme + separator + folder + mark + settings, "/".join(parts[first:])


def _expression(pattern: str) -> str:
    """A regular expression for the same names, with a group for each wild card."""
    rules = {"**/": "((?:[^/]+/)*)", "**": "(.*)", "*": "([^/]*)", "?": "([^/])"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]/!][^\]/]*\])", pattern)
    return "".join(
        rules.get(piece) or (_one_of(piece) if index % 2 else re.escape(piece)) for index, piece in enumerate(pieces)
    )


def _one_of(piece: str) -> str:
    negated, characters = piece[1] == "!", piece[1:-1].removeprefix("!")
    plain = re.sub(r"[\\\[&|~]", r"\\\g<0>", characters)
    return f"([{'^' if negated else ''}{plain}])"


def join(folder: str, name: str) -> str:
    """The place of a file in a folder; an address keeps the settings behind its question mark."""
    if not is_address(folder):
        return f"{folder.rstrip('/')}/{name}" if folder != "." else name
    address, mark, settings = folder.partition("?")
    return f"{address.rstrip('/')}/{quote(name)}{mark}{settings}"


def list_names(folder: str) -> dict[str, int]:
    """The names of all files below a folder, hidden ones too, with their sizes; of a folder that is not there, none.

    Raises:
        BadInputError: It cannot be read, or is a file.
    """
    filesystem, path = _locate(folder)
    if _information(folder).type == fs.FileType.File:
        raise BadInputError(f"{folder}: is a file, a folder belongs here")
    try:
        listed = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be read: {_reason(error)}") from error
    return {each.path.removeprefix(path).lstrip("/"): each.size for each in listed if each.type == fs.FileType.File}


def open_raw(place: str) -> pa.NativeFile:
    """Open a file as it lies, at any position.

    Raises:
        BadInputError: There is none, or it cannot be read.
    """
    filesystem, path = _locate(place)
    try:
        return filesystem.open_input_file(path)
    except FileNotFoundError as error:
        raise BadInputError(f"{place}: no such file") from error
    except OSError as error:
        raise BadInputError(f"{place}: cannot be read: {_reason(error)}") from error


def open_text(place: str) -> BinaryIO:
    """Open a plain, ``.gz`` or ``.zst`` file for reading bytes: ``open_binary`` for any place.

    Raises:
        BadInputError: There is none, or it cannot be read.
    """
    if not is_address(place):
        return open_binary(Path(place))
    raw, packed = open_raw(place), _PACKED.get(compression(place))
    return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(raw, packed) if packed else raw))


def compression(place: str) -> str:
    """``.gz``, ``.zst`` or nothing, by what the name ends in."""
    return next((suffix for suffix in _PACKED if _without_settings(place).endswith(suffix)), "")


def unpacked_name(place: str) -> str:
    """A place without the settings of a store, and without what says how it is compressed."""
    return _without_settings(place).removesuffix(compression(place))


def _without_settings(place: str) -> str:
    return place.partition("?")[0] if is_address(place) else place


@contextmanager
def whole_file(place: str) -> Iterator[BinaryIO]:
    """A new file to write to, compressed as its name says, that takes its name when the block ends.

    Where the block fails, nothing is left. Each writer has an unfinished file of its own: of two that write the same,
    as a task that is begun anew may, the last one's stays, and neither sees the other's. The bytes follow from what
    is written alone.

    Raises:
        BadInputError: It cannot be written.
    """
    filesystem, path = _locate(place)
    local = isinstance(filesystem, fs.LocalFileSystem)
    folder, _, name = path.rpartition("/")
    unfinished = f"{folder}/.{name}.{uuid.uuid4().hex}{UNFINISHED}"
    try:
        filesystem.create_dir(folder, recursive=True)
        stream = filesystem.open_output_stream(unfinished, compression=_PACKED.get(compression(place)))
    except OSError as error:
        raise BadInputError(f"{place}: cannot be written: {_reason(error)}") from error
    try:
        with stream:
            yield cast(BinaryIO, stream)
        if local:
            flush(Path(unfinished))
        filesystem.move(unfinished, path)
        if local:
            flush(Path(folder))
    except BaseException:
        with suppress(OSError):
            filesystem.delete_file(unfinished)
        raise


def delete(place: str) -> None:
    """Delete a file that may be there."""
    filesystem, path = _locate(place)
    with suppress(OSError):
        filesystem.delete_file(path)


def _information(place: str) -> fs.FileInfo:
    filesystem, path = _locate(place)
    try:
        return filesystem.get_file_info(path)
    except OSError as error:
        if is_address(place):
            raise _unreachable(place, error) from error
        raise BadInputError(f"{place}: cannot be read: {_reason(error)}") from error


def _locate(place: str) -> tuple[fs.FileSystem, str]:
    if not is_address(place):
        return fs.LocalFileSystem(), str(Path(place).absolute())
    try:
        filesystem, path = fs.FileSystem.from_uri(place)
    except pa.ArrowInvalid as error:
        raise BadInputError(
            f"{place}: no place that pyarrow's file systems know ({_reason(error)}): give a path, s3://BUCKET/..., "
            f"gs://... or hdfs://...; what lies elsewhere, download first"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise _unreachable(place, error) from error
    return filesystem, path


def _unreachable(place: str, error: BaseException) -> BadInputError:
    return BadInputError(
        f"{place}: cannot be reached: {_reason(error)}: see to the network, the bucket's name, and the address's "
        f"settings (such as ?region=... or ?endpoint_override=...)"
    )


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split())
