"""The plan of an epoch: which pairs share a batch, and in which order the batches come."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError

Plan = list[NDArray[np.int64]]

# Keeps the shuffles of one seed apart from whatever else is drawn from it.
_STREAM: Final = 0x7E57


def plan_epoch(
    source_lengths: NDArray[np.int32],
    target_lengths: NDArray[np.int32],
    batch_tokens: int,
    seed: int,
    epoch: int,
) -> Plan:
    """Batches of pairs of similar length (section 5.1), in random order: a pure function of its arguments.

    Lengths count the symbols that the model sees, the end symbol included. In each batch, rows times longest row
    is at most ``batch_tokens`` on either side. To go on in the middle of an epoch, index the plan.

    Raises:
        BadInputError: A pair is longer than the budget.
    """
    longest = int(max(source_lengths.max(initial=0), target_lengths.max(initial=0)))
    if longest > batch_tokens:
        raise BadInputError(
            f"train.batch_tokens = {batch_tokens}: a training pair has {longest} tokens: raise the budget to at "
            f"least that, or lower data.max_length and prepare again"
        )
    random = np.random.default_rng([_STREAM, seed, epoch])
    # Similar in target length first, then in source length; pairs alike in both come in a random order.
    order = np.lexsort((random.random(len(source_lengths)), source_lengths, target_lengths))
    batches = _cut(order, source_lengths[order], target_lengths[order], batch_tokens)
    return [batches[index] for index in random.permutation(len(batches))]


def _cut(
    order: NDArray[np.int64], source: NDArray[np.int32], target: NDArray[np.int32], batch_tokens: int
) -> list[NDArray[np.int64]]:
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
