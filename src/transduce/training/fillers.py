"""Pairs of weight 0 that give matrices few different sizes, for the sake of oneDNN, PyTorch's library on CPUs."""

from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.data import Batch

# Sequences so short are left alone. Of other sizes, there are so many from any one to twice as much.
_SHORT: Final = 8
_SIZES: Final = 32

T = TypeVar("T", bound=np.generic)


def fill_up(batch: Batch) -> Batch:
    """The batch with pairs of weight 0 that make the number of each side's symbols a round one: about 1% more symbols.

    Then matrices have few sizes in a whole training. oneDNN needs a kernel of its own for the products of each new
    size, which it generates anew once it has had too many others; and a matrix fits into the memory that an earlier
    one has freed.
    """
    widths = batch.source.shape[1], batch.target.shape[1]
    if min(widths) < _SHORT:
        return batch
    sides = [int(lengths.sum()) for lengths in (batch.source_lengths, batch.target_lengths)]
    roundness = [1 << max(0, (symbols // _SIZES).bit_length() - 1) for symbols in sides]
    missing = [-symbols % to for symbols, to in zip(sides, roundness, strict=True)]
    while (pairs := max(-(-symbols // width) for symbols, width in zip(missing, widths, strict=True))) > min(missing):
        missing = [symbols + to * (symbols < pairs) for symbols, to in zip(missing, roundness, strict=True)]
    if not pairs:
        return batch
    source, target = (symbols // pairs + (np.arange(pairs) < symbols % pairs) for symbols in missing)
    weights = np.ones(len(batch.target), np.float32) if batch.weights is None else batch.weights
    return replace(
        batch,
        source=_longer(batch.source, pairs),
        source_lengths=np.concatenate([batch.source_lengths, source]),
        target=_longer(batch.target, pairs),
        labels=_longer(batch.labels, pairs),
        target_lengths=np.concatenate([batch.target_lengths, target]),
        rows=None if batch.rows is None else _longer(batch.rows, pairs),
        weights=_longer(weights, pairs),
    )


def _longer(rows: NDArray[T], pairs: int) -> NDArray[T]:
    """With zeros for so many pairs more: whatever their symbols say."""
    return np.pad(rows, ((0, pairs), *[(0, 0)] * (rows.ndim - 1)))
