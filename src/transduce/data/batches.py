"""Batches as padded arrays, read ahead of the training step."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from transduce.config import SpecialIds
from transduce.data.block import Ids
from transduce.data.plan import Rows

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Pairs as the model trains on them, padded on the right.

    ``source`` ends with the end symbol; ``target`` begins with the begin symbol; ``labels`` is ``target`` shifted
    left by one (section 3.1) and ends with the end symbol. Lengths count these symbols. ``rows`` are the
    pairs' numbers in their store, where they have any. ``weights`` are how much each pair, or each label, counts (see
    ``models.Model.forward``): (pairs,) or (pairs, length); without them all count alike. What has weight 0 goes through
    the model like any other and counts for nothing.
    """

    source: Array
    source_lengths: Array
    target: Array
    labels: Array
    target_lengths: Array
    rows: Array | None = None
    weights: NDArray[np.float32] | None = None

    @property
    def counted(self) -> Array:
        """How many labels of each pair count: end symbols do, padding and what has weight 0 does not."""
        if self.weights is None:
            return self.target_lengths
        weights = self.weights if self.weights.ndim == 2 else self.weights[:, np.newaxis]
        real = np.arange(self.labels.shape[1]) < self.target_lengths[:, np.newaxis]
        counted: Array = ((weights != 0) & real).sum(axis=1)
        return counted

    @property
    def target_tokens(self) -> int:
        """How many labels count in all."""
        return int(self.counted.sum())


def pad(sequences: Sequence[Ids | list[int]], filler: int) -> tuple[Array, Array]:
    """Stack sequences of ids as rows of one array, and their lengths."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    rows = np.full((len(sequences), int(lengths.max(initial=0))), filler, dtype=np.int64)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.concatenate([*sequences]) if len(sequences) else 0
    return rows, lengths


# Other tokens for the same texts: sources, targets and their rows in, sources and targets out.
Resegment = Callable[[list[Ids], list[Ids], Rows], tuple[list[Ids], list[Ids]]]


class Pairs(Protocol):
    """Encoded pairs by their rows: a store's, or a window's of a stream."""

    @property
    def first(self) -> int:
        """The row of one that is there."""
        ...

    def pair(self, index: int, /) -> tuple[Ids, Ids]:
        """Source and target ids of one pair."""
        ...

    def sizes(self, rows: Rows) -> NDArray[np.int64]:
        """Tokens of each of some pairs, both sides together."""
        ...


def make_batch(store: Pairs, rows: Rows, special: SpecialIds, resegment: Resegment | None = None) -> Batch:
    """Read the pairs of one entry of the plan.

    An empty one is of a process that a step has nothing for: it gets the first pair, with weight 0.
    """
    weights = None if len(rows) else np.zeros(1, np.float32)
    rows = rows if len(rows) else np.array([store.first], np.int64)
    sources, targets = (list(side) for side in zip(*(store.pair(int(row)) for row in rows), strict=True))
    if resegment is not None:
        sources, targets = resegment(sources, targets, rows)
    begin, end = np.array([special.begin], np.int32), np.array([special.end], np.int32)
    source, source_lengths = pad([np.concatenate([ids, end]) for ids in sources], special.pad)
    target, target_lengths = pad([np.concatenate([begin, ids]) for ids in targets], special.pad)
    labels, _ = pad([np.concatenate([ids, end]) for ids in targets], special.pad)
    return Batch(source, source_lengths, target, labels, target_lengths, rows, weights)


def drop_symbols(batch: Batch, share: float, unknown: int, seed: Sequence[int]) -> Batch:
    """Symbol dropout: a random share of what the model reads becomes the unknown symbol; what it is to write stays.

    Of the paper's source, in a remark beside section 5.4. What of a pair is hidden is a pure function of ``seed`` and
    the pair's row, which must be known.
    """
    assert batch.rows is not None
    source, target = batch.source.copy(), batch.target.copy()
    for number, row in enumerate(batch.rows):
        chance = np.random.default_rng([*seed, int(row)])
        for ids, lengths in ((source, batch.source_lengths), (target, batch.target_lengths)):
            read = ids[number, : lengths[number]]
            read[chance.random(len(read)) < share] = unknown
    return replace(batch, source=source, target=target)


def read_batches(
    store: Pairs, plan: Iterable[Rows], special: SpecialIds, resegment: Resegment | None = None, *, ahead: int = 8
) -> Iterator[Batch]:
    """The batches of a plan or of a part of it, at most ``ahead`` of them prepared before they are asked for.

    With ``resegment``, lines may become longer than the plan thought.
    """
    return _read_ahead((make_batch(store, rows, special, resegment) for rows in plan), ahead)


def _read_ahead(items: Iterable[Batch], depth: int) -> Iterator[Batch]:
    """Produce items in a thread; its errors are raised here, and it ends when the consumer does."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=depth)
    abandoned = threading.Event()

    def offer(item: Batch | BaseException | None) -> None:
        while not abandoned.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def produce() -> None:
        try:
            for item in items:
                offer(item)
                if abandoned.is_set():
                    return
            offer(None)
        except BaseException as error:
            offer(error)

    threading.Thread(target=produce, daemon=True, name="read-ahead").start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        abandoned.set()
