"""The files that a verb reads and writes line by line."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

_log = logging.getLogger(__name__)


def read_lines_of(input_: str) -> AbstractContextManager[BinaryIO]:
    """Open a file to read, or standard input for ``-``, which stays open.

    Raises:
        BadInputError: There is no such file, or standard input is closed.
    """
    from transduce.data import open_binary

    if input_ != "-":
        return open_binary(Path(input_))
    if sys.stdin is not None and sys.stdin.isatty():
        _log.info("reading lines from the keyboard: --input F reads a file, Ctrl+D ends")
    return nullcontext(_standard(sys.stdin, "input"))


def name_of(input_: str) -> str:
    """What errors and warnings call an input."""
    return "the input" if input_ == "-" else input_


@contextmanager
def write_text_to(output: str, *inputs: Path | str | None) -> Iterator[Callable[[str], None]]:
    """What writes the results of ``inputs``, each at once: to a file, compressed where its name ends in .gz or .zst.

    The file takes its name when the block ends. Where that fails, what was written stays as ``F.unfinished``, which a
    warning says. ``-`` is standard output, which stays open.

    Raises:
        BadInputError: It is one of the inputs or a folder, or standard output is closed.
        OSError: It cannot be written; it is named.
    """
    from transduce.config import BadInputError
    from transduce.config.disk import begin_file, finish_file, name_errors, write_alone
    from transduce.data import create_binary

    if output == "-":
        yield _writer(_standard(sys.stdout, "output"), Path("standard output"))
        return
    path = Path(output)
    read = [Path(each) for each in inputs if each not in (None, "-")]
    if any(_is_same(path, each) for each in read):
        raise BadInputError(f"{output}: is the input too: give --output another name")
    unfinished = begin_file(path)
    for each in read:
        if unfinished is not None and _is_same(unfinished, each):
            raise BadInputError(f"{each}: is where {output} is written first: rename it, or give --output another name")
    with nullcontext() if unfinished is None else write_alone(path, unfinished):
        try:
            with name_errors(path, unfinished):
                stream = create_binary(unfinished or path, path.suffix)
            try:
                yield _writer(stream, path)
            finally:
                with name_errors(path, unfinished):
                    stream.close()
            if unfinished is not None:
                finish_file(path, unfinished)
        except BaseException:
            if unfinished is not None:
                _keep_what_there_is(path, unfinished)
            raise


def _is_same(path: Path, read: Path) -> bool:
    return path.exists() and read.exists() and path.samefile(read)


def _writer(stream: BinaryIO, path: Path) -> Callable[[str], None]:
    from transduce.config.disk import name_errors

    def write(text: str) -> None:
        with name_errors(path):
            stream.write(text.encode())
            stream.flush()

    return write


def _keep_what_there_is(path: Path, unfinished: Path) -> None:
    with suppress(OSError):
        if unfinished.stat().st_size:
            _log.warning(f"{path}: is not finished: what was written so far is in {unfinished}")
        else:
            unfinished.unlink()


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
