"""Which symbols of the target a symbol of the source becomes, learned from prepared pairs by IBM Model 1.

Brown et al. (1993), without its empty word: of a pair, every target symbol comes from one of the source's, whichever,

    p(target | source) = product over j of sum over i of t(target_j | source_i) / |source|.

An iteration counts each target symbol once, shared among the source's symbols in proportion to t, and takes the shares
of the counts for the next t. The first t is the same for all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.data.block import Block, Ids
from transduce.data.store import Store

Numbers = NDArray[np.int64]
Shares = NDArray[np.float64]

# More than these hardly change the order of the best.
_ITERATIONS: Final = 5
# Pairs of positions that are worked on together, and pairs of symbols that are remembered: some hundred megabytes each.
_AT_ONCE: Final = 2**22
_MOST_KNOWN: Final = 2**24


@final
@dataclass(frozen=True)
class Lexicon:
    """The likeliest translations of each source symbol, best first, -1 where there are fewer; frequent target symbols.

    ``frequent`` has the most frequent one first, and none that never occurs.
    """

    translations: Ids  # source vocabulary x size
    frequent: Ids


def learn_lexicon(
    store: Store, vocabularies: tuple[int, int], size: int, first: int, *, pairs: int, most_known: int = _MOST_KNOWN
) -> Lexicon:
    """``size`` translations of each source symbol and ``first`` frequent target symbols, from about ``pairs`` pairs.

    ``vocabularies`` are the numbers of source and target symbols. The pairs are taken evenly from the whole store.
    Memory is the same for every size of the store: of more than ``most_known`` pairs of symbols, the rarest are
    forgotten.
    """
    sources, targets = vocabularies
    step = max(1, -(-len(store) // pairs))
    found = _Table.counted(_read(store, step, targets), most_known).normalized(targets)
    for _ in range(_ITERATIONS - 1):
        found = found.recounted(_read(store, step, targets)).normalized(targets)
    return Lexicon(found.best(sources, targets, size), _most_frequent(store, targets, first))


@final
@dataclass(frozen=True)
class _Positions:
    """Every (source position, target position) of some pairs: which symbols, as one key, and the target's number."""

    keys: Numbers  # source symbol x target vocabulary + target symbol
    target: Numbers

    def shares(self, chances: Shares) -> Shares:
        """Each target position once, shared among the source's positions in proportion to chances."""
        total = np.bincount(self.target, chances)[self.target]
        return np.divide(chances, total, out=np.zeros_like(chances), where=total > 0)


@final
@dataclass(frozen=True)
class _Table:
    """Numbers of pairs of symbols, in ascending order of their keys; what is not there is 0."""

    keys: Numbers
    values: Shares

    @classmethod
    def counted(cls, chunks: Iterator[_Positions], most: int) -> "_Table":
        """The first iteration, in which every source position has the same share."""
        table = cls(np.zeros(0, np.int64), np.zeros(0))
        for each in chunks:
            table = table._add(each.keys, each.shares(np.ones(len(each.keys))))._forget(most)
        return table

    def recounted(self, chunks: Iterator[_Positions]) -> "_Table":
        """One more iteration of what is known, values being probabilities."""
        counts = np.zeros(len(self.keys))
        for each in chunks:
            places = np.searchsorted(self.keys, each.keys).clip(max=len(self.keys) - 1)
            known = self.keys[places] == each.keys
            np.add.at(counts, places, each.shares(np.where(known, self.values[places], 0.0)))
        return _Table(self.keys, counts)

    def normalized(self, targets: int) -> "_Table":
        """Counts as shares of each source symbol's."""
        source = self.keys // targets
        total = np.bincount(source, self.values, minlength=1)[source]
        return _Table(self.keys, np.divide(self.values, total, out=np.zeros_like(self.values), where=total > 0))

    def best(self, sources: int, targets: int, size: int) -> Ids:
        """The targets of each source's largest values, largest first, -1 where there are fewer; equals by number."""
        source = self.keys // targets
        order = np.lexsort((self.keys, -self.values, source))
        source = source[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        kept = (rank < size) & (self.values[order] > 0)
        result = np.full((sources, size), -1, np.int32)
        result[source[kept], rank[kept]] = (self.keys % targets)[order][kept]
        return result

    def _add(self, keys: Numbers, values: Shares) -> "_Table":
        every = np.concatenate([self.keys, keys])
        unique, places = np.unique(every, return_inverse=True)
        return _Table(unique, np.bincount(places, np.concatenate([self.values, values])).astype(np.float64, copy=False))

    def _forget(self, most: int) -> "_Table":
        """The smallest values go, and room is made for as many new ones."""
        if len(self.keys) <= most:
            return self
        kept = np.sort(np.argpartition(self.values, -(most // 2))[-(most // 2) :])
        return _Table(self.keys[kept], self.values[kept])


def _read(store: Store, step: int, targets: int) -> Iterator[_Positions]:
    """Every ``step``-th pair of the store, in chunks."""
    for block in store.blocks:
        rows = np.arange(0, len(block), step)
        positions = block.source.lengths()[rows].astype(np.int64) * block.target.lengths()[rows]
        ends = np.cumsum(positions) // _AT_ONCE
        for chunk in np.split(rows, np.flatnonzero(np.diff(ends)) + 1):
            yield _positions(block, chunk, targets)


def _positions(block: Block, rows: Numbers, targets: int) -> _Positions:
    source_lengths, target_lengths = (side.lengths()[rows].astype(np.int64) for side in (block.source, block.target))
    each = source_lengths * target_lengths
    row = np.repeat(np.arange(len(rows)), each)
    place = np.arange(len(row)) - (np.cumsum(each) - each)[row]
    i, j = place // target_lengths[row], place % target_lengths[row]
    source = block.source.values[block.source.offsets[rows][row] + i].astype(np.int64)
    target = block.target.values[block.target.offsets[rows][row] + j]
    return _Positions(source * targets + target, (np.cumsum(target_lengths) - target_lengths)[row] + j)


def _most_frequent(store: Store, targets: int, first: int) -> Ids:
    counts = np.zeros(targets, np.int64)
    for block in store.blocks:
        offsets = block.target.offsets
        counts += np.bincount(block.target.values[offsets[0] : offsets[-1]], minlength=targets)
    order = np.argsort(-counts, kind="stable")[:first]
    return order[counts[order] > 0].astype(np.int32)
