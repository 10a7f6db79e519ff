"""Lines of text files, plain, gzip or zstd: only a line feed ends a line, and only UTF-8 is text."""

import gzip
import io
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa

from transduce.config import BadInputError

# A small compressed file may hold a line of any length.
LONGEST_LINE: Final = 2**24  # bytes


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
                return cast(BinaryIO, io.BufferedReader(pa.input_stream(str(path), compression="zstd")))
            case _:
                return path.open("rb")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def raw_lines(stream: BinaryIO, name: object) -> Iterator[bytes]:
    """The lines of an open file as bytes, with their line feeds.

    Raises:
        BadInputError: It is a compressed file that is damaged or cut short; the line is named.
    """
    number = 0
    try:
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), start=1):
            if len(raw) > LONGEST_LINE:
                raise BadInputError(
                    f"{name} line {number}: is longer than {LONGEST_LINE:,} bytes: break it (only a line feed ends a "
                    f"line)"
                )
            yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInputError(f"{name}: damaged gzip file after line {number}: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        # Arrow's errors of decompression have no number.
        raise BadInputError(f"{name}: damaged zstd file after line {number}: {error}") from error


def read_lines(path: Path, *, keep_invalid: bool = False) -> Iterator[str]:
    """The lines of a file, without their line feeds.

    With ``keep_invalid``, bytes that are no UTF-8 come as surrogates, which no valid text has (see ``is_text``).

    Raises:
        BadInputError: The file cannot be read, is cut short, or holds invalid UTF-8 (file and line are named).
    """
    errors = "surrogateescape" if keep_invalid else "strict"
    with open_binary(path) as stream:
        for number, raw in enumerate(raw_lines(stream, path), start=1):
            try:
                yield raw.removesuffix(b"\n").decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise BadInputError(
                    f"{path} line {number}: invalid UTF-8 (byte 0x{error.object[error.start]:02x} "
                    f"at column {error.start + 1}): convert the file to UTF-8 (of training text, "
                    f'data.invalid_utf8 = "drop" leaves such lines out)'
                ) from error


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
    sides = zip_longest(*(read_lines(path, keep_invalid=keep_invalid) for path in (source, target)))
    for count, (left, right) in enumerate(sides):
        if left is None or right is None:
            rest = 1 + sum(1 for _ in sides)
            counts = (count, count + rest) if left is None else (count + rest, count)
            raise BadInputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}: line i of one belongs to line i "
                f"of the other, so both must have the same number"
            )
        yield left, right
