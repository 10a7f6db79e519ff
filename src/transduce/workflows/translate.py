"""One line in, one line out."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final

from transduce.data import raw_lines
from transduce.inference import Translation

# As many lines as arrive within the pause are translated together: a file fills whole batches, a person who types is
# answered line by line.
_LINES_AT_A_TIME: Final = 2048
_PAUSE_SECONDS: Final = 0.05


def translate_stream(
    stream: BinaryIO,
    translate: Callable[[list[str]], list[Translation]],
    write: Callable[[Translation], None],
    warn: Callable[[str], None],
) -> int:
    """Translate every line of a stream in order and return their number.

    Only a line feed ends a line. Invalid UTF-8 is replaced, and its line named in a warning.
    """
    count = 0
    for arrived in _arrivals(raw_lines(stream, getattr(stream, "name", "the input"))):
        texts = []
        for number, raw in enumerate(arrived, start=count + 1):
            line = raw.removesuffix(b"\n")
            try:
                texts.append(line.decode("utf-8"))
            except UnicodeDecodeError:
                warn(f"line {number}: invalid UTF-8 was replaced")
                texts.append(line.decode("utf-8", errors="replace"))
        for translation in translate(texts):
            write(translation)
        count += len(texts)
    return count


def one_line(text: str) -> str:
    """The text with any line feed as a space: an output is one line, whatever the model wrote."""
    return text.replace("\n", " ")


def _arrivals(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines in the groups in which they arrive."""
    arrived: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2 * _LINES_AT_A_TIME)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True, name="read-lines").start()
    group: list[bytes] = []
    while True:
        try:
            item = arrived.get(timeout=_PAUSE_SECONDS if group else None)
        except queue.Empty:
            yield group
            group = []
            continue
        if isinstance(item, BaseException):
            raise item
        if item is not None:
            group.append(item)
        if group and (item is None or len(group) == _LINES_AT_A_TIME):
            yield group
            group = []
        if item is None:
            return
