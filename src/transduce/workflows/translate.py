"""One line in, one line out."""

import gzip
import logging
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, final

from transduce.config import BadInputError
from transduce.data import Bare, check_length, raw_lines, read_lines, refuse_other_encodings
from transduce.data.lines import LONGEST_LINE
from transduce.inference import DocumentTranslation, Translation, translate_documents
from transduce.text import DocumentKind, read_document

# As many lines as arrive within the pause are translated together: a file fills whole batches, a person who types is
# answered line by line. The first lines of a long input come in smaller groups, so that its first results come soon.
_FIRST_LINES: Final = 64
_LINES_AT_A_TIME: Final = 2048
_PAUSE_SECONDS: Final = 0.05
_BLOCK_BYTES: Final = 65_536
# However few lines that are: those of a group are all kept at a time.
_GROUP_BYTES: Final = LONGEST_LINE
_log = logging.getLogger(__name__)

T = TypeVar("T")


@final
class Beside:
    """A file that says something of every line of the input, read along with it; or nothing, which says nothing."""

    def __init__(self, lines: Iterator[str] | None, name: str = "") -> None:
        self._lines, self._name = lines, name

    @classmethod
    def open(cls, path: Path | None) -> "Beside":
        """The file's lines, or nothing.

        Raises:
            BadInputError: The file cannot be read.
        """
        return cls(None) if path is None else cls(iter(read_lines(path)), str(path))

    def take(self, count: int) -> list[str] | None:
        """What it says of the next lines.

        Raises:
            BadInputError: It has fewer lines than the input.
        """
        if self._lines is None:
            return None
        taken = list(islice(self._lines, count))
        if len(taken) < count:
            raise BadInputError(f"{self._name}: has fewer lines than the input: line i is for line i")
        return taken

    def check_end(self) -> None:
        """Behind the input's last line.

        Raises:
            BadInputError: It has more lines than the input.
        """
        if self._lines is not None and next(self._lines, None) is not None:
            raise BadInputError(f"{self._name}: has more lines than the input: line i is for line i")


def translate_stream(
    stream: BinaryIO,
    translate: Callable[[list[str], int], Iterable[T]],
    write: Callable[[T], None],
    name: str = "the input",
) -> int:
    """Translate every line of a stream in order and return their number; ``name`` is what errors call it.

    ``translate`` takes lines and the number of the first of them, and gives what ``write`` takes of each. No more than
    a group of lines is kept, however long the stream is. Only a line feed ends a line. Invalid UTF-8 is replaced, and a
    warning names the first such line; so does one the first line with more than a line feed at its end, or with a
    byte-order mark, which are left out (``data.bare``).

    Raises:
        BadInputError: The stream is damaged, begins as UTF-16 does, or has a line of more than 16 MiB.
    """
    count, bare = 0, Bare()
    with closing(_Replaced(name)) as replaced:
        for arrived in _arrivals(stream, name):
            if count == 0:
                refuse_other_encodings(arrived[0], name)
            texts = []
            for number, raw in enumerate(arrived, start=count + 1):
                texts.append(bare.text(replaced.decode(raw.removesuffix(b"\n"), number), f"{name} line {number:,}"))
            began = time.perf_counter()
            for result in translate(texts, count + 1):
                write(result)
            count += len(texts)
            _log.debug(f"lines to {count:,}: {len(texts):,} in {time.perf_counter() - began:.2f} s")
    return count


@final
class _Replaced:
    """Decodes the lines of one input, and says of the first with bytes that are no UTF-8 that they were replaced.

    At its end is said how many such lines there were, where it was not the only one.
    """

    def __init__(self, name: object) -> None:
        self._name, self._lines = name, 0

    def decode(self, line: bytes, number: int) -> str:
        """The text of a line."""
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self._lines += 1
            if self._lines == 1:
                _log.warning(
                    f"{self._name} line {number:,}: invalid UTF-8 was replaced by U+FFFD: convert the text to UTF-8 "
                    f"(of Latin-1: iconv -f ISO-8859-1 -t UTF-8) and translate it anew"
                )
            return line.decode("utf-8", errors="replace")

    def close(self) -> None:
        """Say how many lines there were."""
        if self._lines > 1:
            _log.warning(f"{self._name}: invalid UTF-8 was replaced in {self._lines:,} lines")


def translate_document(
    stream: BinaryIO,
    kind: DocumentKind,
    language: str,
    translate: Callable[[list[str]], Sequence[Translation]],
    name: str = "the input",
) -> DocumentTranslation:
    """Translate all of a stream as one document in this language, its sentences by one call of ``translate``.

    Invalid UTF-8 is replaced, with a warning.

    Raises:
        BadInputError: The stream is damaged, begins as UTF-16 does, or is no such document.
        TransduceError: An extra is not installed.
    """
    with closing(_Replaced(name)) as replaced:
        text = "".join(replaced.decode(line, number) for number, line in enumerate(raw_lines(stream, name), start=1))
    (found,) = translate_documents([read_document(kind, text, language)], translate)
    return found


def one_line(text: str) -> str:
    """The text with any line feed as a space: an output is one line, whatever the model wrote."""
    return text.replace("\n", " ")


def in_groups(items: Iterable[T], sizes: Iterator[int], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in groups of these sizes, or smaller ones where the items of one are so large that memory could end.

    Where reading the items fails, what came before is a group too, and the error follows.
    """
    group: list[T] = []
    size, weight = next(sizes), 0
    try:
        for item in items:
            group.append(item)
            weight += weigh(item)
            if len(group) == size or weight >= _GROUP_BYTES:
                yield group
                group, size, weight = [], next(sizes), 0
    except BadInputError:
        if group:
            yield group
        raise
    if group:
        yield group


def _arrivals(stream: BinaryIO, name: object) -> Iterator[list[bytes]]:
    """Lines in the groups in which they are translated: a file's in full ones, a pipe's or a person's as they come."""
    if _waits(stream):
        return _as_they_come(stream.fileno(), name)
    return in_groups(raw_lines(stream, name), _group_sizes(), len)


def _group_sizes() -> Iterator[int]:
    """How many lines a group has at most: twice as many each time, up to a full one."""
    size = _FIRST_LINES
    while True:
        yield size
        size = min(2 * size, _LINES_AT_A_TIME)


def _waits(stream: BinaryIO) -> bool:
    """Whether reading may wait for somebody: a terminal, a pipe or a socket.

    What is decompressed does not count: its descriptor gives the bytes as they are compressed.
    """
    if isinstance(stream, gzip.GzipFile):
        return False
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # no file of the system's at all
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISBLK(mode))


def _as_they_come(descriptor: int, name: object) -> Iterator[list[bytes]]:
    """Full groups while lines keep coming, and what there is as soon as they pause.

    Raises:
        BadInputError: A line is longer than any line may be; what came before it has come out.
    """
    waiting: list[bytes] = []
    rest: list[bytes] = []  # the parts of a line whose end has not come
    sizes = _group_sizes()
    size, number = next(sizes), 1
    while True:
        # Unbuffered and without a thread: an interrupt ends the wait, and nothing is left half read.
        if not select.select([descriptor], [], [], _PAUSE_SECONDS if waiting else None)[0]:
            yield waiting
            waiting = []
            continue
        block = os.read(descriptor, _BLOCK_BYTES)
        first, *others = block.split(b"\n")
        rest.append(first)
        # Only a line of several blocks can be too long. With its line feed, as the reader of files counts it.
        try:
            check_length(sum(map(len, rest)) + bool(others), name, number)
        except BadInputError:
            if waiting:
                yield waiting
            raise
        if others or not block:
            lines = [b"".join(rest), *others]
            # What stands behind the last line feed is a line where there is anything.
            rest = [lines.pop()] if block or not lines[-1] else []
            number += len(lines)
            waiting += lines
        while len(waiting) >= size or sum(map(len, waiting)) >= _GROUP_BYTES:
            yield waiting[:size]
            del waiting[:size]
            size = next(sizes)
        if not block:
            if waiting:
                yield waiting
            return
