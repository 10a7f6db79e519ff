"""A block of the store: consecutive pairs as views on flat arrays, and what is written down about them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transduce.config import BadInputError

Ids = NDArray[np.int32]
# Source, target, and the number of the corpus that they are of.
EncodedPair = tuple[list[int], list[int], int]

_IDS = pa.list_(pa.int32())
SCHEMA = pa.schema([("source", _IDS), ("target", _IDS), ("corpus", pa.uint8())])


@final
@dataclass(frozen=True)
class Facts:
    """What is known of a block without reading its pairs; of two figures, the source's comes first."""

    longest: tuple[int, int]
    tokens: tuple[int, int]
    corpora: dict[int, int]  # how many pairs are of each corpus
    sha256: str

    def to_json(self) -> str:
        """As it stands in the file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> "Facts":
        """What ``to_json`` wrote.

        Raises:
            ValueError: It is something else.
        """
        try:
            read = json.loads(text)
            source, target = ((int(read[key][0]), int(read[key][1])) for key in ("longest", "tokens"))
            return cls(source, target, {int(key): int(n) for key, n in read["corpora"].items()}, str(read["sha256"]))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"its description of a block is damaged: {error!r}") from error


@final
@dataclass(frozen=True)
class Side:
    """A ragged array of sequences: row r is ``values[offsets[r] : offsets[r + 1]]``."""

    offsets: Ids | NDArray[np.int64]
    values: Ids

    @classmethod
    def join(cls, sequences: Sequence[list[int]]) -> "Side":
        """Of sequences.

        Raises:
            BadInputError: They have more symbols than a block's offsets count, which are of 32 bits.
        """
        ends = np.cumsum([0, *map(len, sequences)])
        if ends[-1] >= 2**31:
            raise BadInputError(
                f"{len(sequences):,} lines have {ends[-1]:,} symbols, more than a store takes at once: are there line "
                f"ends in the file? data.max_length leaves out what is longer"
            )
        offsets = ends.astype(np.int32)
        return cls(offsets, np.fromiter(chain.from_iterable(sequences), np.int32, int(offsets[-1])))

    @classmethod
    def concatenate(cls, sides: Sequence["Side"]) -> "Side":
        """One behind the other."""
        lengths = np.concatenate([np.zeros(1, np.int32), *(side.lengths() for side in sides)])
        values = np.concatenate([np.zeros(0, np.int32), *(side.values for side in sides)])
        return cls(lengths.cumsum(dtype=np.int64), values)

    @classmethod
    def view(cls, column: pa.ListArray) -> "Side":
        """Arrow's column, without a copy."""
        return cls(column.offsets.to_numpy(zero_copy_only=True), column.values.to_numpy(zero_copy_only=True))

    def row(self, index: int) -> Ids:
        """One sequence, as a view."""
        start, stop = self.offsets[index : index + 2]
        return self.values[start:stop]  # damaged offsets give other values, and never lead out of the array

    def lengths(self) -> Ids:
        """Of every sequence."""
        return np.diff(self.offsets).astype(np.int32, copy=False)


@final
@dataclass(frozen=True)
class Block:
    """Consecutive pairs, and the number of the corpus that each is of."""

    source: Side
    target: Side
    corpora: NDArray[np.uint8]

    @classmethod
    def join(cls, pairs: Sequence[EncodedPair]) -> "Block":
        """Of pairs."""
        sources, targets, corpora = zip(*pairs, strict=True)
        return cls(Side.join(sources), Side.join(targets), np.array(corpora, np.uint8))

    @classmethod
    def concatenate(cls, blocks: Sequence["Block"]) -> "Block":
        """One behind the other."""
        sources, targets = [block.source for block in blocks], [block.target for block in blocks]
        corpora = np.concatenate([np.zeros(0, np.uint8), *(block.corpora for block in blocks)])
        return cls(Side.concatenate(sources), Side.concatenate(targets), corpora)

    @classmethod
    def view(cls, batch: pa.RecordBatch) -> "Block":
        """Arrow's batch, without a copy."""
        source, target, corpora = batch.columns
        return cls(Side.view(source), Side.view(target), corpora.to_numpy(zero_copy_only=True))

    def to_arrow(self) -> pa.RecordBatch:
        """The same arrays as Arrow has them."""
        sides = [pa.ListArray.from_arrays(side.offsets, side.values) for side in (self.source, self.target)]
        return pa.record_batch([*sides, pa.array(self.corpora)], schema=SCHEMA)

    def __len__(self) -> int:
        return len(self.corpora)

    def facts(self) -> Facts:
        """Read it all, and describe it."""
        sides = self.source, self.target
        source, target = (side.lengths() for side in sides)
        arrays = [self.corpora, *(array for side in sides for array in (side.offsets, side.values))]
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return Facts(
            longest=(int(source.max(initial=0)), int(target.max(initial=0))),
            tokens=(int(source.sum()), int(target.sum())),
            corpora={corpus: int(count) for corpus, count in enumerate(np.bincount(self.corpora)) if count},
            sha256=digest.hexdigest(),
        )
