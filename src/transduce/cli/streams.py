"""The files that a verb reads and writes line by line."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO


def read_lines_of(input_: str) -> AbstractContextManager[BinaryIO]:
    """Open a file to read, or standard input for ``-``, which stays open.

    Raises:
        BadInputError: There is no such file, or standard input is closed.
    """
    from transduce.data import open_binary

    return nullcontext(_standard(sys.stdin, "input")) if input_ == "-" else open_binary(Path(input_))


def name_of(input_: str) -> str:
    """What errors and warnings call an input."""
    return "the input" if input_ == "-" else input_


def write_lines_to(output: str, input_: str) -> AbstractContextManager[BinaryIO]:
    """Open a file for the results of ``input_``, compressed where its name ends in ``.gz`` or ``.zst``.

    ``-`` is standard output, which stays open.

    Raises:
        BadInputError: It is the input, or cannot be written, or standard output is closed.
    """
    from transduce.config import BadInputError
    from transduce.data import create_binary

    if output == "-":
        return nullcontext(_standard(sys.stdout, "output"))
    if input_ != "-" and Path(output).exists() and Path(output).samefile(input_):
        raise BadInputError(f"{output}: is the input too: give --output another name")
    return create_binary(Path(output))


def _standard(stream: TextIO | None, name: str) -> BinaryIO:
    from transduce.config import BadInputError

    if stream is None:
        raise BadInputError(f"standard {name} is closed: give --{name} F")
    return stream.buffer


def count_lines(input_: str) -> int | None:
    """How many lines a file has; None where it cannot be read twice (a pipe), or not to its end (its reader says)."""
    from transduce.config import BadInputError
    from transduce.data import open_binary, raw_lines

    if input_ == "-" or not Path(input_).is_file():
        return None
    try:
        with open_binary(Path(input_)) as stream:
            return sum(1 for _ in raw_lines(stream, input_))
    except BadInputError:
        return None
