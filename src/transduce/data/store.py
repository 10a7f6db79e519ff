"""The store: tokenized pairs in one Arrow file, memory-mapped, so that training reads any pair at once."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from transduce.config import BadInputError

_VERSION: Final = "2"
_ROWS_PER_BATCH: Final = 65_536
_IDS: Final = pa.list_(pa.int32())
_SCHEMA: Final = pa.schema([("source", _IDS), ("target", _IDS), ("corpus", pa.uint8())])

Ids = NDArray[np.int32]
# Source, target, and the number of the corpus that they are of.
EncodedPair = tuple[list[int], list[int], int]


def write_store(path: Path, pairs: Iterable[EncodedPair], origin: dict[str, str]) -> None:
    """Write pairs of id sequences (no begin or end symbols) and what they were made from.

    The file appears whole or not at all.
    """
    schema = _SCHEMA.with_metadata({"version": _VERSION, "origin": json.dumps(origin)})
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as stream:
        with ipc.new_file(stream, schema) as writer:
            for block in _blocks(pairs):
                columns = [
                    pa.array(values, type=field.type)
                    for values, field in zip(zip(*block, strict=True), _SCHEMA, strict=True)
                ]
                writer.write_batch(pa.record_batch(columns, schema=schema))
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)


def _blocks(pairs: Iterable[EncodedPair]) -> Iterator[list[EncodedPair]]:
    remaining = iter(pairs)
    while block := list(islice(remaining, _ROWS_PER_BATCH)):
        yield block


@dataclass(frozen=True)
class _Side:
    """One column as views on the mapped file: block b's row r is ``values[b][offsets[b][r] : offsets[b][r + 1]]``."""

    offsets: tuple[Ids, ...]
    values: tuple[Ids, ...]

    def row(self, index: int) -> Ids:
        block, row = divmod(index, _ROWS_PER_BATCH)
        start, stop = self.offsets[block][row : row + 2]
        return self.values[block][start:stop]

    def lengths(self) -> Ids:
        return np.concatenate([np.diff(offsets) for offsets in self.offsets] or [np.zeros(0, np.int32)])


@final
class Store:
    """A store opened for reading; ``len`` is the number of pairs, ``corpora`` says which corpus each is of."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            BadInputError: It is missing, damaged, or of another version.
        """
        try:
            self._file = ipc.open_file(pa.memory_map(str(path)))
        except FileNotFoundError as error:
            raise BadInputError(f"{path}: no such store: run transduce prepare first") from error
        except (pa.ArrowException, OSError) as error:
            raise BadInputError(f"{path}: not a readable store ({error}): prepare the run again") from error
        metadata = self._file.schema.metadata or {}
        known = metadata.get(b"version") == _VERSION.encode() and b"origin" in metadata
        if not known or not self._file.schema.equals(_SCHEMA):
            raise BadInputError(f"{path}: a store of another version: prepare the run again")
        try:
            self.origin: dict[str, str] = json.loads(metadata[b"origin"])
            blocks = [self._file.get_batch(index) for index in range(self._file.num_record_batches)]
            for block in blocks:
                block.validate(full=True)  # offsets that lead out of the file would end the process
        except (ValueError, OSError) as error:  # Arrow's errors of format are ValueErrors
            raise BadInputError(f"{path}: a damaged store ({error}): prepare the run again") from error
        self._source, self._target = (_views([block.column(side) for block in blocks]) for side in range(2))
        self.source_lengths = self._source.lengths()
        self.target_lengths = self._target.lengths()
        self.corpora: NDArray[np.uint8] = np.concatenate(
            [block.column("corpus").to_numpy() for block in blocks] or [np.zeros(0, np.uint8)]
        )

    def __len__(self) -> int:
        return len(self.source_lengths)

    def pair(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of one pair, as views."""
        return self._source.row(index), self._target.row(index)


def _views(columns: list[pa.ListArray]) -> _Side:
    return _Side(
        tuple(column.offsets.to_numpy(zero_copy_only=True) for column in columns),
        tuple(column.values.to_numpy(zero_copy_only=True) for column in columns),
    )
