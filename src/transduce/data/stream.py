"""Training pairs as they are read: a window of them at a time, in batches of random order, and nothing stored.

A window is a number of records in a row, less those that are not learned from. So it can be had once more by where it
begins, and an interrupted training goes on bit for bit as if it had not been. Its pairs are planned as the store's are:
a window with room for the whole corpus gives the batches that the store would give.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, DataConfig
from transduce.data.block import Block, EncodedPair, Ids
from transduce.data.corpus import name_corpus
from transduce.data.parts import Cursor, PartReader
from transduce.data.plan import Rows, Window, padding_share, plan_window

_log = logging.getLogger(__name__)

_RECORDS_AT_A_TIME: Final = 10_000  # are tokenized together
_LOOK_SECONDS: Final = 1.0  # from one look at a folder that is being written to the next


@final
@dataclass(frozen=True)
class Record:
    """A pair as it stands in a corpus; its number is that of the pass, over all corpora, counted from 1."""

    number: int
    corpus: int
    pair: tuple[str, str]


class Encoder(Protocol):
    """What makes ids of text, and is passed in."""

    def encode(self, records: Sequence[Record]) -> list[EncodedPair]:
        """Those that are learned from, in order."""
        ...

    def report(self) -> list[str]:
        """What was kept and dropped since the last report, for people."""
        ...


@final
@dataclass(frozen=True)
class Position:
    """Where a window begins: all that it takes to read it again, and to see that it is still the same text."""

    cursors: tuple[Cursor, ...] = ()  # of the corpora
    turn: int = 0  # the corpus whose record comes next
    files: tuple[dict[str, tuple[int, ...]], ...] = ()  # of each corpus, the names and sizes of what was read until now
    listed: tuple[tuple[str, ...], ...] = ()  # and the names of all that this pass reads, where it waits for no more
    records: int = 0  # of this pass
    pairs: int = 0  # of them, that are learned from
    earlier: int = 0  # records of the passes before
    window: int = 0  # records of the window itself, once it is read
    ended: bool = False  # the training has learned from all there is

    @property
    def read(self) -> int:
        """Records that were read since the training began."""
        return self.earlier + self.records + self.window


@final
@dataclass(frozen=True)
class WindowPairs:
    """The pairs of a window; their rows are their numbers among the pairs of the pass, as in a store."""

    block: Block
    first: int

    def pair(self, row: int) -> tuple[Ids, Ids]:
        """Source and target ids of one pair, as views."""
        index = row - self.first
        return self.block.source.row(index), self.block.target.row(index)

    def sizes(self, rows: Rows) -> NDArray[np.int64]:
        """Tokens of each of some pairs, both sides together."""
        at, sizes = rows - self.first, np.zeros(len(rows), np.int64)
        for side in (self.block.source, self.block.target):
            sizes += side.offsets[at + 1] - side.offsets[at]
        return sizes


@final
@dataclass(frozen=True)
class StreamWindow:
    """A window, its number in the pass, where it begins, and its batches."""

    epoch: int
    index: int
    position: Position
    pairs: WindowPairs
    planned: Window


@final
@dataclass(frozen=True)
class Stream:
    """The training corpora of a run, read in turns, a pair of each, for as long as there are any in the pass."""

    data: DataConfig
    encoder: Encoder
    batch_tokens: int
    seed: int

    @property
    def longest(self) -> int:
        """Tokens that the longest side may have, end symbol included."""
        return self.data.max_length

    @property
    def ends(self) -> bool:
        """Whether there is a last window."""
        return self.data.at_end != "repeat"

    @contextmanager
    def open(self, epoch: int, index: int, position: Position | None) -> Iterator["WindowQueue"]:
        """Read windows from one on, each while the one before it is learned from."""
        over = threading.Event()
        with ThreadPoolExecutor(1, "stream") as thread:
            try:
                yield WindowQueue(thread, self._windows(epoch, index, position or Position(), over))
            finally:
                over.set()

    def _windows(self, epoch: int, index: int, start: Position, over: threading.Event) -> Iterator[StreamWindow]:
        while True:
            reading, whole, more = _Pass(self.data, start, over), index == 0, True
            while more:
                begin = reading.position()
                records, block = self._read(reading, over)
                if over.is_set():
                    return
                if len(block):
                    # What the window itself was read from must be there once more, too.
                    position = replace(begin, window=records, files=reading.position().files)
                    pairs, planned = self._plan(block, begin.pairs, (self.seed, epoch, index))
                    yield StreamWindow(epoch, index, position, pairs, planned)
                index += 1
                more = records == self.data.shuffle_window
            self._tell(epoch)
            end = reading.position()
            if whole and not end.pairs:
                raise BadInputError("data.train: of all that was read no pair is left to learn from: see the log above")
            if self.ends:
                return
            epoch, index, start = epoch + 1, 0, Position(files=end.files, earlier=end.earlier + end.records)

    def _tell(self, epoch: int) -> None:
        """Say what became of a pass; of later ones, it is the same."""
        for number, line in enumerate(self.encoder.report()):
            beginning = "the training corpora are read to their end: " if not number else ""
            _log.log(logging.DEBUG if epoch else logging.INFO, f"{beginning}{line}")

    def _read(self, reading: "_Pass", over: threading.Event) -> tuple[int, Block]:
        """How many records the next window has, fewer where the pass is over, and the pairs of them."""
        records, blocks = 0, []
        wanted = self.data.shuffle_window
        while records < wanted:
            group = list(islice(reading.records(), min(_RECORDS_AT_A_TIME, wanted - records)))
            if not group or over.is_set():
                break
            records += len(group)
            if pairs := self.encoder.encode(group):
                blocks.append(Block.join(pairs))
                reading.pairs += len(pairs)
        return records, Block.concatenate(blocks)

    def _plan(self, block: Block, first: int, key: tuple[int, int, int]) -> tuple[WindowPairs, Window]:
        # The model sees the end symbol too.
        source, target = block.source.lengths() + 1, block.target.lengths() + 1
        batches = plan_window(source, target, self.batch_tokens, key)
        window = Window([first + rows for rows in batches], padding_share(source, target, batches))
        return WindowPairs(block, first), window


Patience = Literal["always", "first", "never"]


def read_beginning(data: DataConfig, *, waits: bool = True) -> Iterator[Record]:
    """The records of a stream from its beginning, as far as they are there; with ``waits``, once there is one."""
    return _Pass(data, Position(), threading.Event(), "first" if waits else "never").records()


@final
class _Pass:
    """One pass through all corpora, from a position on."""

    def __init__(self, data: DataConfig, start: Position, over: threading.Event, patience: Patience = "always") -> None:
        """``patience``: whether records that are not there yet are waited for, or only the first; ``over`` ends it."""
        number = len(data.train)
        self._readers = [
            PartReader(
                corpus,
                data.folder,
                cursor,
                sizes,
                listed,
                waits=data.at_end == "wait",
                keep_invalid=data.invalid_utf8 == "drop",
            )
            for corpus, cursor, sizes, listed in zip(
                data.train,
                start.cursors or (Cursor(),) * number,
                start.files or ({},) * number,
                start.listed or ((),) * number,
                strict=True,
            )
        ]
        self._pairs = [reader.records() for reader in self._readers]
        self._names = [name_corpus(corpus, data.folder) for corpus in data.train]
        self._turn, self._records, self._earlier = start.turn, start.records, start.earlier
        self._over, self._patience = over, patience
        self.pairs = start.pairs

    def position(self) -> Position:
        """Where it stands."""
        return Position(
            cursors=tuple(reader.cursor for reader in self._readers),
            turn=self._turn,
            files=tuple(dict(reader.sizes) for reader in self._readers),
            listed=tuple(reader.listed for reader in self._readers),
            records=self._records,
            pairs=self.pairs,
            earlier=self._earlier,
        )

    def records(self) -> Iterator[Record]:
        """What comes next, until all corpora are at their end, or nobody wants to know any more."""
        idle = 0
        while idle < len(self._pairs) and not self._over.is_set():
            corpus = self._turn
            self._turn = (corpus + 1) % len(self._pairs)
            pair = self._wait(corpus)
            idle = idle + 1 if pair is None else 0
            if pair is not None:
                self._records += 1
                yield Record(self._records, corpus, pair)

    def _wait(self, corpus: int) -> tuple[str, str] | None:
        """The next pair of a corpus, as soon as it is there; None at its end."""
        told = None
        for pair in self._pairs[corpus]:
            if pair is not None:
                return pair
            if self._patience == "never" or (self._patience == "first" and self._records):
                self._over.set()
            elif told != (missing := self._readers[corpus].missing):
                told = missing
                _log.info(f"{self._names[corpus]}: waiting for {missing}")
            if self._over.wait(_LOOK_SECONDS):
                break
        return None


@final
class WindowQueue:
    """The windows of a stream, one of them read ahead: at most two are in memory."""

    def __init__(self, thread: ThreadPoolExecutor, windows: Iterator[StreamWindow]) -> None:
        self._thread, self._windows = thread, windows
        self._coming: Future[StreamWindow | None] = thread.submit(next, windows, None)

    def is_ready(self, seconds: float) -> bool:
        """Wait so long at most; whether the next one, or the end, is there."""
        return bool(wait([self._coming], seconds).done)

    def take(self) -> StreamWindow | None:
        """The next one, when it is there; None where there is no more.

        Raises:
            BadInputError: The text cannot be read, or is no longer what it was.
        """
        window = self._coming.result()
        self._coming = self._thread.submit(next, self._windows, None)
        return window
