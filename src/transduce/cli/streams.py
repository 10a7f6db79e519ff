"""The files that a verb reads and writes line by line."""

from pathlib import Path
from typing import BinaryIO


def create_output(path: Path, input_: str) -> BinaryIO:
    """Open a file for the results of ``input_``, compressed where its name ends in ``.gz`` or ``.zst``.

    Raises:
        BadInputError: It is the input, or cannot be written.
    """
    from transduce.config import BadInputError
    from transduce.data import create_binary

    if input_ != "-" and path.exists() and path.samefile(input_):
        raise BadInputError(f"{path}: is the input too: give --output another name")
    return create_binary(path)


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
