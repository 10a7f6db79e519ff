"""The store: tokenized pairs in one Arrow file, memory-mapped, so that training reads any pair at once."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from transduce.config import BadInputError
from transduce.data.block import SCHEMA, Block, EncodedPair, Facts, Ids

_VERSION: Final = "2"
# What an epoch takes in a random order: small enough that many of them make a window of the plan.
_ROWS_PER_BLOCK: Final = 16_384
_FACTS: Final = b"facts"
_AGAIN: Final = "prepare the run again (transduce prepare)"


def write_store(path: Path, pairs: Iterable[EncodedPair], origin: dict[str, str]) -> None:
    """Write pairs of id sequences (no begin or end symbols) and what they were made from.

    The file appears whole or not at all.

    Raises:
        OSError: It could not be written.
    """
    schema = SCHEMA.with_metadata({"version": _VERSION, "origin": json.dumps(origin)})
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("wb") as stream:
            with ipc.new_file(stream, schema) as writer:
                for block in _blocks(pairs):
                    writer.write_batch(block.to_arrow(), custom_metadata={_FACTS: block.facts().to_json()})
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException as error:
        unfinished.unlink(missing_ok=True)  # it may be what fills the disk
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # Arrow's errors name none
        raise
    unfinished.replace(path)


def _blocks(pairs: Iterable[EncodedPair]) -> Iterator[Block]:
    remaining = iter(pairs)
    while block := list(islice(remaining, _ROWS_PER_BLOCK)):
        yield Block.join(block)


@final
class Store:
    """A store opened for reading; ``len`` is the number of pairs.

    Opening reads what is written about each block, and no pair: for every block of 16,384 pairs, some kilobytes are in
    memory. ``facts`` has what is known of each of ``blocks``.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            BadInputError: It is missing, cut short, or of another version. Damage within it is for ``verify`` to find.
        """
        self.path = path
        try:
            self._file = ipc.open_file(pa.memory_map(str(path)))
        except FileNotFoundError as error:
            raise BadInputError(f"{path}: no such store: {_AGAIN}") from error
        except (pa.ArrowException, OSError) as error:
            raise BadInputError(f"{path}: not a readable store ({error}): {_AGAIN}") from error
        metadata = self._file.schema.metadata or {}
        known = metadata.get(b"version") == _VERSION.encode() and b"origin" in metadata
        if not known or not self._file.schema.equals(SCHEMA):
            raise BadInputError(f"{path}: a store of another version: {_AGAIN}")
        try:
            self.origin: dict[str, str] = json.loads(metadata[b"origin"])
            opened = [_read(self._file, index) for index in range(self._file.num_record_batches)]
        except (ValueError, OSError) as error:  # Arrow's errors of format are ValueErrors
            raise BadInputError(f"{path}: a damaged store ({error}): {_AGAIN}") from error
        self.blocks = tuple(block for block, _ in opened)
        # Stores of older versions say nothing of their blocks: those are read.
        self.facts = tuple(block.facts() if known is None else known for block, known in opened)
        self._starts = np.array([0, *accumulate(len(block) for block in self.blocks)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def first(self) -> int:
        """The row of the first pair."""
        return 0

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and the longest target."""
        return _each(max, [known.longest for known in self.facts])

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of all sources and all targets."""
        return _each(sum, [known.tokens for known in self.facts])

    def count_symbol(self, symbol: int) -> tuple[int, int]:
        """How often a symbol stands in all sources, and in all targets; every pair is read."""
        sides = ((block.source.values, block.target.values) for block in self.blocks)
        return _each(sum, [(int(np.sum(source == symbol)), int(np.sum(target == symbol))) for source, target in sides])

    def count(self, corpus: int) -> int:
        """How many pairs are of a corpus."""
        return sum(facts.corpora.get(corpus, 0) for facts in self.facts)

    def pair(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of one pair, as views."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        block, row = self.blocks[number], index - int(self._starts[number])
        return block.source.row(row), block.target.row(row)

    def rows(self, number: int) -> NDArray[np.int64]:
        """The indices of the pairs of a block."""
        return np.arange(self._starts[number], self._starts[number + 1])

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each of some pairs, both sides together."""
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        sizes = np.zeros(len(rows), np.int64)
        for number in np.unique(numbers).tolist():
            inside, block = numbers == number, self.blocks[number]
            at = rows[inside] - self._starts[number]
            sizes[inside] = sum(side.offsets[at + 1] - side.offsets[at] for side in (block.source, block.target))
        return sizes

    def verify(self) -> None:
        """Read the whole file, a block at a time and past the mapping, and compare it with its checksums.

        Raises:
            BadInputError: It is damaged; the block is named.
        """
        with pa.OSFile(str(self.path)) as stream:
            file = ipc.open_file(stream)
            for number in range(len(self.blocks)):
                if flaw := _flaw(file, number):
                    raise BadInputError(f"{self.path}: block {number:,} is damaged ({flaw}): {_AGAIN}")


def _read(file: ipc.RecordBatchFileReader, number: int, *, full: bool = False) -> tuple[Block, Facts | None]:
    read = file.get_batch_with_custom_metadata(number)
    read.batch.validate(full=full)
    facts = (read.custom_metadata or {}).get(_FACTS)
    return Block.view(read.batch), None if facts is None else Facts.from_json(facts)


def _flaw(file: ipc.RecordBatchFileReader, number: int) -> str | None:
    try:
        block, known = _read(file, number, full=True)
    except (ValueError, OSError) as error:
        return str(error)
    return "its checksum is another than when it was written" if known not in (None, block.facts()) else None


def _each(summary: Callable[[Iterable[int]], int], figures: list[tuple[int, int]]) -> tuple[int, int]:
    """Of the sources' figures, and of the targets'."""
    source, target = zip((0, 0), *figures, strict=True)
    return summary(source), summary(target)
