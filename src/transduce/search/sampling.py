"""Symbols by chance, the same chance in every batch."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from transduce.config.splitmix import STEP, mix, signed
from transduce.search.settings import Sampling


def uniform(seed: int, numbers: Sequence[int], samples: int, positions: Sequence[int]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each of so many samples of each sentence, which has come to a position of its own.

    Each is a pure function of the four.
    """
    # Mixed one after the other: of a sum, one sentence's next chance would be the next sentence's.
    sentences = _next(_next(np.array([signed(seed)], dtype=np.int64)) + np.array(numbers, dtype=np.int64))
    rows = _next(np.add.outer(sentences, np.arange(samples)).ravel())
    columns = np.repeat(np.array(positions, dtype=np.int64), samples)
    return np.ldexp((_next(rows + columns).view(np.uint64) >> np.uint64(11)).astype(np.float64), -53)


def draw(
    scores: Float[Tensor, "rows vocabulary"], chances: Float[Tensor, " rows"], sampling: Sampling
) -> Int[Tensor, " rows"]:
    """One symbol for each row: the first, in the order of ids, whose cumulative probability is above the row's chance.

    In that order and in float64, the last digits of the scores move a bound a little, and nothing else.
    """
    scores = scores.double() / sampling.temperature
    if sampling.top_k is not None:
        least = scores.topk(min(sampling.top_k, scores.shape[1]), dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    probability = scores.softmax(dim=1)
    if sampling.top_p is not None:
        probability = _nucleus(probability, sampling.top_p)
    cumulative = probability.cumsum(dim=1)
    chosen = torch.searchsorted(cumulative, chances.unsqueeze(1) * cumulative[:, -1:], right=True).squeeze(1)
    return chosen.clamp(max=scores.shape[1] - 1)


def _nucleus(probability: Float[Tensor, "rows vocabulary"], top_p: float) -> Float[Tensor, "rows vocabulary"]:
    """The fewest most probable symbols whose probabilities sum to ``top_p`` or more; the others become 0."""
    best = probability.sort(dim=1, descending=True).values
    before = best.cumsum(dim=1) - best
    least = best.masked_fill(before >= top_p, torch.inf).amin(dim=1, keepdim=True)
    return probability.masked_fill(probability < least, 0.0)


def _next(states: NDArray[np.int64]) -> NDArray[np.int64]:
    words: NDArray[np.int64] = states + STEP
    mix(words)
    return words
