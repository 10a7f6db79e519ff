"""Batches as padded arrays, read ahead of the training step."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transduce.data.block import Ids
from transduce.data.plan import Rows
from transduce.data.store import Store
from transduce.text import SpecialIds

Array = NDArray[np.int64]


# Sequences so short are left alone. Of other sizes, there are so many from any one to twice as much.
_NARROW: Final = 8
_SIZES: Final = 32


@dataclass(frozen=True)
class Batch:
    """Pairs as the model trains on them, padded on the right.

    ``source`` ends with the end symbol; ``target`` begins with the begin symbol; ``labels`` is ``target`` shifted
    left by one (section 3.1) and ends with the end symbol. Lengths count these symbols. ``rows`` are the
    pairs' numbers in their store, where they have any. A ``stand_in`` goes through the model like any other, for a
    process that a step has nothing for, but counts for nothing; so do the last ``fillers`` pairs.
    """

    source: Array
    source_lengths: Array
    target: Array
    labels: Array
    target_lengths: Array
    rows: Array | None = None
    stand_in: bool = False
    fillers: int = 0

    @property
    def target_tokens(self) -> int:
        """How many labels there are, end symbols counted, padding not."""
        return 0 if self.stand_in else int(self.target_lengths[: len(self.target_lengths) - self.fillers].sum())


def pad(sequences: Sequence[Ids | list[int]], filler: int) -> tuple[Array, Array]:
    """Stack sequences of ids as rows of one array, and their lengths."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    rows = np.full((len(sequences), int(lengths.max(initial=0))), filler, dtype=np.int64)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.concatenate([*sequences]) if len(sequences) else 0
    return rows, lengths


def fill_up(batch: Batch) -> Batch:
    """The batch with as many fillers as make the number of each side's symbols a round one: about 1% more symbols.

    Then matrices have few sizes in a whole training. The products of each new size need a kernel of their own, which
    oneDNN generates anew once it has had too many others, and what a matrix leaves behind is where the next one fits.
    """
    widths = batch.source.shape[1], batch.target.shape[1]
    if min(widths) < _NARROW or batch.fillers:
        return batch
    sides = [int(lengths.sum()) for lengths in (batch.source_lengths, batch.target_lengths)]
    roundness = [1 << max(0, (symbols // _SIZES).bit_length() - 1) for symbols in sides]
    missing = [-symbols % to for symbols, to in zip(sides, roundness, strict=True)]
    while (pairs := max(-(-symbols // width) for symbols, width in zip(missing, widths, strict=True))) > min(missing):
        missing = [symbols + to * (symbols < pairs) for symbols, to in zip(missing, roundness, strict=True)]
    if not pairs:
        return batch
    source, target = (symbols // pairs + (np.arange(pairs) < symbols % pairs) for symbols in missing)

    def longer(ids: Array) -> Array:
        return np.pad(ids, ((0, pairs), (0, 0)))  # whatever they say

    return Batch(
        longer(batch.source),
        np.concatenate([batch.source_lengths, source]),
        longer(batch.target),
        longer(batch.labels),
        np.concatenate([batch.target_lengths, target]),
        None if batch.rows is None else np.pad(batch.rows, (0, pairs)),
        batch.stand_in,
        pairs,
    )


# Other tokens for the same texts: sources, targets and their rows in, sources and targets out.
Resegment = Callable[[list[Ids], list[Ids], Rows], tuple[list[Ids], list[Ids]]]


def make_batch(store: Store, rows: Rows, special: SpecialIds, resegment: Resegment | None = None) -> Batch:
    """Read the pairs of one entry of the plan; of an empty one, the store's first pair as a stand-in."""
    stand_in = not len(rows)
    rows = np.zeros(1, np.int64) if stand_in else rows
    sources, targets = (list(side) for side in zip(*(store.pair(int(row)) for row in rows), strict=True))
    if resegment is not None:
        sources, targets = resegment(sources, targets, rows)
    begin, end = np.array([special.begin], np.int32), np.array([special.end], np.int32)
    source, source_lengths = pad([np.concatenate([ids, end]) for ids in sources], special.pad)
    target, target_lengths = pad([np.concatenate([begin, ids]) for ids in targets], special.pad)
    labels, _ = pad([np.concatenate([ids, end]) for ids in targets], special.pad)
    return Batch(source, source_lengths, target, labels, target_lengths, rows, stand_in)


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
    store: Store, plan: Iterable[Rows], special: SpecialIds, resegment: Resegment | None = None, *, ahead: int = 8
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
