"""The files that a verb reads and writes line by line."""

from pathlib import Path
from typing import BinaryIO


def create_output(path: Path, input_: str) -> BinaryIO:
    """Open a file for the results of ``input_``.

    Raises:
        BadInputError: It is the input, or cannot be written.
    """
    from transduce.config import BadInputError

    if input_ != "-" and path.exists() and path.samefile(input_):
        raise BadInputError(f"{path}: is the input too: give --output another name")
    try:
        return path.open("wb")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


def count_lines(input_: str) -> int | None:
    """How many lines a file has; None for standard input."""
    from transduce.data import open_binary, raw_lines

    if input_ == "-":
        return None
    with open_binary(Path(input_)) as stream:
        return sum(1 for _ in raw_lines(stream, input_))
