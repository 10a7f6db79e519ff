"""The plan of an epoch: which pairs share a batch, and in which order the batches come."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError

Plan = list[NDArray[np.int64]]

# Keeps the shuffles of one seed apart from whatever else is drawn from it.
_STREAM: Final = 0x7E57
_SAMPLES: Final = 0x5A3B


def plan_epoch(
    source_lengths: NDArray[np.int32],
    target_lengths: NDArray[np.int32],
    batch_tokens: int,
    seed: int,
    epoch: int,
    rows: NDArray[np.int64] | None = None,
) -> Plan:
    """Batches of pairs of similar length (section 5.1), in random order: a pure function of its arguments.

    Lengths count the symbols that the model sees, the end symbol included. In each batch, rows times longest row
    is at most ``batch_tokens`` on either side. ``rows`` says which pairs the epoch has, some perhaps several times;
    without it, each once. To go on in the middle of an epoch, index the plan.

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
    rows = np.arange(len(source_lengths)) if rows is None else rows
    order = rows[_sort(source_lengths[rows], target_lengths[rows], random)]
    batches = _cut(order, source_lengths[order], target_lengths[order], batch_tokens)
    return [batches[index] for index in random.permutation(len(batches))]


def padding_share(source_lengths: NDArray[np.int32], target_lengths: NDArray[np.int32], plan: Plan) -> float:
    """How much of the plan's batches, both sides together, is padding: 0 to 1."""
    real = padded = 0
    for lengths in (source_lengths, target_lengths):
        real += sum(int(lengths[rows].sum()) for rows in plan)
        padded += sum(len(rows) * int(lengths[rows].max()) for rows in plan)
    return 1 - real / max(1, padded)


def draw_rows(corpora: NDArray[np.uint8], weights: Sequence[float], seed: int, epoch: int) -> NDArray[np.int64]:
    """Which pairs an epoch has: those of corpus c ``weights[c]`` times each.

    Of a weight that is no whole number, the rest is a share of the corpus, drawn anew for each epoch.
    ``corpora`` says which corpus each pair is of.

    Raises:
        BadInputError: The weights leave no pair.
    """
    random = np.random.default_rng([_SAMPLES, seed, epoch])
    drawn = []
    for corpus, weight in enumerate(weights):
        rows = np.flatnonzero(corpora == corpus)
        whole = int(weight)
        drawn += [rows] * whole
        drawn.append(random.permutation(rows)[: round((weight - whole) * len(rows))])
    rows = np.concatenate(drawn)
    if not len(rows):
        given = ", ".join(map(str, weights))
        raise BadInputError(f"data.train: with weight = {given} an epoch has no pair at all: raise the weight")
    return rows


def _sort(source: NDArray[np.int32], target: NDArray[np.int32], random: np.random.Generator) -> NDArray[np.int64]:
    """Pairs whose longer sides are alike together, and among these such whose shorter sides are.

    The shorter side grows and shrinks by turns, so that it does not jump where the longer one grows by one. Pairs alike
    in both come in a random order.
    """
    longer, excess = np.maximum(source, target), source - target
    return np.lexsort((random.random(len(source)), np.where(longer % 2, -excess, excess), longer))


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
