"""The plan of an epoch: which pairs share a batch, and in which order the batches come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.data.store import Store

Rows = NDArray[np.int64]
Lengths = NDArray[np.int32]

# So many pairs are planned at a time, about: enough that batches are as full as if all were.
_WINDOW: Final = 2**20
# Each keeps what is drawn for one purpose apart from whatever else is drawn from a seed.
_STREAM: Final = 0x7E57
_SAMPLES: Final = 0x5A3B
_BLOCKS: Final = 0xB10C


@final
@dataclass(frozen=True)
class Window:
    """A part of an epoch: the store's rows in each batch, and how much of the batches is padding, 0 to 1."""

    batches: list[Rows]
    padding: float


@final
@dataclass(frozen=True)
class Plan:
    """The batches of an epoch, planned a window at a time, so that memory does not grow with the corpus.

    A window has so many of the store's blocks, drawn at random, that it is about a million pairs, or all there are; its
    pairs are sorted, cut into batches and shuffled. To go on in the middle of an epoch, index the batches of a window.
    """

    store: Store
    batch_tokens: int
    seed: int
    epoch: int
    weights: tuple[float, ...]

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self._blocks)

    def window(self, index: int) -> Window:
        """Plan one: a pure function of the plan and the index."""
        numbers = self._blocks[index]
        blocks = [self.store.blocks[number] for number in numbers]
        rows = np.concatenate([self.store.rows(number) for number in numbers])
        # The model sees the end symbol too.
        source = np.concatenate([block.source.lengths() for block in blocks]) + 1
        target = np.concatenate([block.target.lengths() for block in blocks]) + 1
        # NumPy fills keys up with zeros, so that the first window draws what an epoch without windows drew.
        key = self.seed, self.epoch, index
        drawn = draw_rows(np.concatenate([block.corpora for block in blocks]), self._times(index), key)
        batches = plan_window(source, target, self.batch_tokens, key, drawn)
        return Window([rows[batch] for batch in batches], padding_share(source, target, batches))

    def __iter__(self) -> Iterator[Rows]:
        for index in range(self.windows):
            yield from self.window(index).batches

    def count_batches(self) -> int:
        """How many the epoch has: all of it is planned."""
        return sum(len(self.window(index).batches) for index in range(self.windows))

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """How many pairs of each corpus each block has."""
        corpora = range(len(self.weights))
        counts = [facts.corpora.get(corpus, 0) for facts in self.store.facts for corpus in corpora]
        return np.array(counts, np.int64).reshape(-1, len(corpora))

    @cached_property
    def _blocks(self) -> list[list[int]]:
        """The blocks of each window: in random order, and so many that windows are alike in size."""
        sizes = self._counts @ np.array(self.weights)
        order = np.random.default_rng([_BLOCKS, self.seed, self.epoch]).permutation(len(sizes))
        before = sizes[order].cumsum() - sizes[order]
        windows = max(1.0, np.ceil(sizes.sum() / _WINDOW))
        window = before // max(1.0, sizes.sum() / windows)
        # A heavy block may be more than a window.
        return [sorted(order[window == index].tolist()) for index in np.unique(window)]

    def _times(self, index: int) -> list[tuple[int, int]]:
        """How often a window has the pairs of each corpus: so many times, and so many of them once more.

        What is left of a weight that is no whole number is rounded for all windows up to one together, so that the
        epoch as a whole has what the weights say.
        """
        before, own = (
            self._counts[[number for blocks in part for number in blocks]].sum(axis=0)
            for part in (self._blocks[:index], self._blocks[index : index + 1])
        )
        return [
            (int(weight), round(weight % 1 * (first + count)) - round(weight % 1 * first))
            for weight, first, count in zip(self.weights, before.tolist(), own.tolist(), strict=True)
        ]


def plan_epoch(store: Store, batch_tokens: int, seed: int, epoch: int, weights: Sequence[float] | None = None) -> Plan:
    """Batches of pairs of similar length (section 5.1), in random order: a pure function of its arguments.

    In each batch, rows times longest row, the end symbol included, is at most ``batch_tokens`` on either side. An epoch
    has the pairs of corpus c ``weights[c]`` times each, or without weights once; of a weight that is no whole number,
    the rest is a share of the corpus, drawn anew for each epoch.

    Raises:
        BadInputError: A pair is longer than the budget, or the weights leave no pair.
    """
    longest = max(store.longest) + 1
    if len(store) and longest > batch_tokens:
        raise BadInputError(
            f"train.batch_tokens = {batch_tokens}: a training pair has {longest} tokens: raise the budget to at "
            f"least that, or lower data.max_length and prepare again"
        )
    if weights is None:
        weights = [1.0] * (1 + max((corpus for facts in store.facts for corpus in facts.corpora), default=0))
    elif not any(round(weight * store.count(corpus)) for corpus, weight in enumerate(weights)):
        given = ", ".join(map(str, weights))
        raise BadInputError(f"data.train: with weight = {given} an epoch has no pair at all: raise the weight")
    return Plan(store, batch_tokens, seed, epoch, tuple(weights))


def plan_window(
    source: Lengths, target: Lengths, batch_tokens: int, key: Sequence[int], rows: Rows | None = None
) -> list[Rows]:
    """Batches of pairs whose lengths are all at hand: a pure function of its arguments.

    ``key`` is what the order is drawn with. ``rows`` says which pairs there are, some perhaps several times; without
    it, each is there once. No pair may be longer than ``batch_tokens``.
    """
    random = np.random.default_rng([_STREAM, *key])
    rows = np.arange(len(source)) if rows is None else rows
    order = rows[_sort(source[rows], target[rows], random)]
    batches = _cut(order, source[order], target[order], batch_tokens)
    return [batches[index] for index in random.permutation(len(batches))]


def padding_share(source: Lengths, target: Lengths, batches: Sequence[Rows]) -> float:
    """How much of the batches, both sides together, is padding: 0 to 1."""
    if not batches:
        return 0.0
    sizes, rows = np.array([len(batch) for batch in batches]), np.concatenate(batches)
    starts = sizes.cumsum() - sizes
    sides = source[rows], target[rows]
    padded = sum(int(sizes @ np.maximum.reduceat(side, starts)) for side in sides)
    return 1 - sum(int(side.sum()) for side in sides) / padded


def draw_rows(corpora: NDArray[np.uint8], times: Sequence[tuple[int, int]], key: Sequence[int]) -> Rows:
    """Draw pairs by their corpora, and return their indices: a pure function of its arguments.

    Args:
        corpora: The corpus that each pair is of.
        times: For each corpus, how often all of its pairs are taken, and how many of them once more.
        key: What these are drawn with.
    """
    random = np.random.default_rng([_SAMPLES, *key])
    drawn = []
    for corpus, (whole, more) in enumerate(times):
        rows = np.flatnonzero(corpora == corpus)
        drawn += [rows] * whole
        drawn.append(random.permutation(rows)[:more])
    return np.concatenate(drawn)


def _sort(source: Lengths, target: Lengths, random: np.random.Generator) -> Rows:
    """Pairs whose longer sides are alike together, and among these such whose shorter sides are.

    The shorter side grows and shrinks by turns, so that it does not jump where the longer one grows by one. Pairs alike
    in both come in a random order.
    """
    longer, excess = np.maximum(source, target), source - target
    return np.lexsort((random.random(len(source)), np.where(longer % 2, -excess, excess), longer))


def _cut(order: Rows, source: Lengths, target: Lengths, batch_tokens: int) -> list[Rows]:
    """Cut the sorted pairs greedily: each batch takes as many rows as fit."""
    batches = []
    start = 0
    while start < len(order):
        window = slice(start, start + batch_tokens // int(max(source[start], target[start])))
        widest = np.maximum.accumulate(np.maximum(source[window], target[window]))
        fits = widest * np.arange(1, len(widest) + 1) <= batch_tokens
        rows = len(fits) if fits.all() else int(fits.argmin())
        batches.append(order[start : start + rows])
        start += rows
    return batches
