"""Lines of text files, plain, gzip or zstd: only a line feed ends a line, and only UTF-8 is text.

What Windows writes beside the text is left out, by one rule: ``bare``.
"""

import codecs
import gzip
import io
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Final, cast, final

import pyarrow as pa

from transduce.config import BadInputError

# A small compressed file may hold a line of any length.
LONGEST_LINE: Final = 2**24  # bytes
_MARK: Final = "\ufeff"
_LINE_ENDS: Final = "\r\n"
_RETURN: Final = "\r"
_SEVERAL: Final = 3  # carriage returns within a line, which one or two may have for a reason
# What files in other encodings begin with, the longer marks first: UTF-32's begins as UTF-16's does.
_OTHERS: Final = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Of four bytes of ASCII, those that are NUL.
_WIDE: Final = {(1, 3): "UTF-16LE", (0, 2): "UTF-16BE", (1, 2, 3): "UTF-32LE", (0, 1, 2): "UTF-32BE"}
_MOST: Final = 0.8  # of the characters
_LEAST_WIDE: Final = 6  # bytes that are enough to guess by
_LOOKED_AT: Final = 1024  # bytes of a file, to guess its encoding
# What compressed files begin with, and what decompresses them.
_COMPRESSED: Final = {
    b"\x1f\x8b": ("gzip", ".gz", "gzip -d"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst", "zstd -d"),
}
_TOLD: Final = 1024  # messages that are remembered, to be said once
_log = logging.getLogger(__name__)


def bare(text: str) -> str:
    """A text without what Windows writes beside it: a byte-order mark before, carriage returns and line feeds behind.

    The one rule for all text, of training, translating and evaluating, from files and in Python. Within a text a
    carriage return is a character like any other.
    """
    return text.removeprefix(_MARK).rstrip(_LINE_ENDS)


@final
class Bare:
    """``bare`` for the texts of one file; of the first that has a mark, or line ends, is said what was left out.

    Of the first with a NUL, which stays, is said that it is hardly text.
    """

    def __init__(self, tell: Callable[[str], None] = _log.warning) -> None:
        self._tell = tell
        self._mark_told = self._end_told = self._nul_told = self._inside_told = False

    def text(self, text: str, place: str) -> str:
        """The text itself; ``place`` is where it stands, for people."""
        if not self._nul_told and "\0" in text:
            self._nul_told = True
            self._tell(
                f"{place}: has a NUL, which stays: text of another encoding (iconv -f UTF-16LE -t UTF-8 converts one), "
                f"or damaged (tr -d '\\000' takes them out)?"
            )
        found = bare(text)
        if not self._inside_told and _RETURN in found and found.count(_RETURN) >= _SEVERAL:
            self._inside_told = True
            self._tell(
                f"{place}: has {found.count(_RETURN):,} carriage returns within. If they are meant to end lines, "
                f"convert the file (tr '\\r' '\\n'): only a line feed ends a line"
            )
        if len(found) == len(text):
            return found
        if not self._mark_told and text.startswith(_MARK):
            self._mark_told = True
            self._tell(f"{place}: a byte-order mark stands before the text: such are left out")
        if not self._end_told and text.endswith(tuple(_LINE_ENDS)):
            self._end_told = True
            name = "a carriage return, as in files from Windows," if text.endswith("\r") else "a line feed"
            self._tell(f"{place}: {name} stands behind the text: such are left out, here and on all other lines")
        return found


def tell_once(path: Path) -> Callable[[str], None]:
    """For warnings about a file, which is read several times: each is given once, while the file stays as it is."""
    try:
        found = path.stat()
    except OSError:  # reading it will say why
        return _log.warning
    return partial(_tell_once, found.st_mtime_ns, found.st_size)


@lru_cache(_TOLD)
def _tell_once(_time: int, _size: int, message: str) -> None:
    _log.warning(message)


def refuse_other_encodings(beginning: bytes, name: object) -> None:
    """Look at how a file begins.

    Raises:
        BadInputError: It says itself that it is no UTF-8, has a NUL in every character, or is compressed.
    """
    for mark, (kind, suffix, command) in _COMPRESSED.items():
        if beginning.startswith(mark):
            raise BadInputError(
                f"{name} line 1: is compressed by {kind}: decompress it first ({command}); a file may as well have a "
                f"name that ends in {suffix}"
            )
    for mark, encoding in _OTHERS.items():
        if beginning.startswith(mark):
            raise BadInputError(
                f"{name} line 1: begins with the byte-order mark of {encoding}: convert it to UTF-8 "
                f"(iconv -f {encoding} -t UTF-8)"
            )
    if (guess := _guess_wide(beginning[:_LOOKED_AT])) is not None:
        raise BadInputError(
            f"{name} line 1: has NULs as {guess} has them, and no byte-order mark: convert it to UTF-8 "
            f"(iconv -f {guess} -t UTF-8)"
        )


def _guess_wide(beginning: bytes) -> str | None:
    """The encoding of text that is mostly ASCII, where it takes several bytes for each character."""
    parts = [beginning[i::4] for i in range(4)]
    empty = tuple(i for i, part in enumerate(parts) if part.count(0) > _MOST * len(part))
    return _WIDE.get(empty) if len(beginning) >= _LEAST_WIDE else None


def open_binary(path: Path) -> BinaryIO:
    """Open a plain, ``.gz`` or ``.zst`` file for reading bytes.

    Raises:
        BadInputError: There is no such file, it is a directory, or it cannot be read.
    """
    if path.is_dir():
        raise BadInputError(f"{path}: is a directory, a text file belongs here")
    try:
        match path.suffix:
            case ".gz":
                return cast(BinaryIO, gzip.open(path))
            case ".zst":
                file = str(path) if path.is_file() else path.open("rb")  # Arrow itself opens no pipes
                return cast(BinaryIO, io.BufferedReader(pa.input_stream(file, compression="zstd")))
            case _:
                return path.open("rb")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error


def create_binary(path: Path, suffix: str) -> BinaryIO:
    """Open a file for writing bytes, compressed as names are that end in ``suffix``: ``.gz`` or ``.zst``.

    Raises:
        OSError: It cannot be written.
    """
    match suffix:
        case ".gz":  # what is asked to be flushed waits here: compressed line by line it would hardly be smaller
            return io.BufferedWriter(cast(io.RawIOBase, gzip.open(path, "wb")))
        case ".zst":
            return io.BufferedWriter(pa.output_stream(str(path), compression="zstd"))
        case _:
            return path.open("wb")


def check_length(length: int, name: object, number: int) -> None:
    """Look at the number of bytes of a line, which may be cut.

    Raises:
        BadInputError: It has more than ``LONGEST_LINE``.
    """
    if length > LONGEST_LINE:
        raise BadInputError(
            f"{name} line {number}: is longer than {LONGEST_LINE:,} bytes: break it (only a line feed ends a line)"
        )


def raw_lines(stream: BinaryIO, name: object) -> Iterator[bytes]:
    """The lines of an open file as bytes, with their line feeds.

    Raises:
        BadInputError: It is a compressed file that is damaged or cut short, it cannot be read any further, a line is
            too long, or the file begins as UTF-16 or UTF-32 does; the line is named.
    """
    number = 0
    try:
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), start=1):
            check_length(len(raw), name, number)
            if number == 1:
                refuse_other_encodings(raw, name)
                if raw == codecs.BOM_UTF8:  # and nothing else: an empty file
                    return
            yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInputError(f"{name}: damaged gzip file after line {number}: {error}{_cure(number)}") from error
    except OSError as error:
        # Arrow's errors have no number: those of decompression, and those of files that are elsewhere.
        kind = {"gz": "gzip", "zst": "zstd"}.get(str(name).rpartition(".")[2]) if error.errno is None else None
        what, cure = (f"damaged {kind} file", _cure(number)) if kind else ("cannot be read", "")
        raise BadInputError(f"{name}: {what} after line {number}: {error.strerror or error}{cure}") from error


def _cure(number: int) -> str:
    """What to do about a compressed file that is damaged behind so many lines."""
    if number:
        return ": copy it again"
    return ": copy it again, or where it is plain text, rename it: what a name ends in says how it is compressed"


def read_lines(path: str | os.PathLike[str], *, keep_invalid: bool = False) -> Iterator[str]:
    """The lines of a file, ``bare`` of their line ends; a warning names the first that had more than a line feed.

    With ``keep_invalid``, bytes that are no UTF-8 come as surrogates, which no valid text has (see ``is_text``).

    Raises:
        BadInputError: The file cannot be read, is cut short, or holds invalid UTF-8 (file and line are named).
    """
    path = Path(path)
    with open_binary(path) as stream:
        yield from decode_lines(stream, path, Bare(tell_once(path)), keep_invalid=keep_invalid)


def decode_lines(stream: BinaryIO, name: object, texts: Bare, *, keep_invalid: bool) -> Iterator[str]:
    """``read_lines`` of an open file, which errors call ``name``."""
    errors = "surrogateescape" if keep_invalid else "strict"
    for number, raw in enumerate(raw_lines(stream, name), start=1):
        try:
            line = raw.removesuffix(b"\n").decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise BadInputError(
                f"{name} line {number}: invalid UTF-8 (byte 0x{error.object[error.start]:02x} "
                f"at column {error.start + 1}): convert the file to UTF-8 (of training text, "
                f'data.invalid_utf8 = "drop" leaves such lines out)'
            ) from error
        yield texts.text(line, f"{name} line {number}")


def describe_json_error(error: Exception) -> str:
    """What is wrong with JSON on one line: the parser counts lines of its own, and calls it line 1 wherever it is."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def is_text(line: str) -> bool:
    """Whether a line is all text, and no stray bytes that were let through."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_pairs(source: Path, target: Path, *, keep_invalid: bool = False) -> Iterator[tuple[str, str]]:
    """The pairs of two parallel files.

    Raises:
        BadInputError: As ``read_lines``; or the files differ in length (both counts are named).
    """
    left, right = (read_lines(path, keep_invalid=keep_invalid) for path in (source, target))
    return pair_lines(left, right, (source, target))


def pair_lines(
    sources: Iterator[str], targets: Iterator[str], names: tuple[object, object]
) -> Iterator[tuple[str, str]]:
    """``read_pairs`` of lines that are read already, or will be, by the names of their files."""
    source, target = names
    sides = zip_longest(sources, targets)
    for count, (left, right) in enumerate(sides):
        if left is None or right is None:
            rest = 1 + sum(1 for _ in sides)
            counts = (count, count + rest) if left is None else (count + rest, count)
            raise BadInputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}: line i of one belongs to line i "
                f"of the other, so both must have the same number"
            )
        yield left, right
