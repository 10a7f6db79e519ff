"""Whether ways to train learn alike: their losses, step by step, from the same weights on the same batches."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, final

import numpy as np
import torch

from benchmarks.peers.batches import Corpus
from benchmarks.peers.contestant import Contestant, find_step
from transduce.config import TransformerConfig
from transduce.training import learning_rate

WINDOW: Final = 50  # steps that a smoothed loss is the mean of
WITHIN: Final = 0.02  # nats per target token that two curves may be apart
_WARMUP: Final = 1000


@final
@dataclass(frozen=True)
class Comparison:
    """Where two smoothed loss curves end, and how far apart they are at most, in nats per target token."""

    dropout: float
    steps: int
    one: str
    other: str
    one_end: float
    other_end: float
    largest_difference: float


def compare_curves(
    config: TransformerConfig, device: torch.device, corpus: Corpus, contestants: Sequence[Contestant], steps: int
) -> list[Comparison]:
    """Each two contestants' trainings from the same weights on the same batches.

    Dropout draws other numbers for each.
    """
    curves = [
        (str(contestant), smooth(_train(config, device, corpus, contestant, steps, seed)))
        for seed, contestant in enumerate(contestants)
    ]
    return [
        Comparison(config.dropout, steps, one, other, float(a[-1]), float(b[-1]), float(np.abs(a - b).max()))
        for (one, a), (other, b) in combinations(curves, 2)
    ]


def _train(
    config: TransformerConfig, device: torch.device, corpus: Corpus, contestant: Contestant, steps: int, seed: int
) -> list[float]:
    """The loss before each of so many steps, by the paper's schedule with a short warm-up."""
    print(f"{steps} steps of {contestant} with dropout {config.dropout}", file=sys.stderr)
    step = find_step(contestant, config, device)
    torch.manual_seed(100 + seed)
    rates = (learning_rate(number, config.d_model, _WARMUP, 1.0) for number in range(1, steps + 1))
    losses = [step(batch, rate) for batch, rate in zip(corpus.take(0, steps), rates, strict=True)]
    return [float(loss) for loss in losses]


def smooth(losses: Iterable[float], window: int = WINDOW) -> np.ndarray:
    """The means of all ``window`` losses in a row; of all losses where there are fewer."""
    sums = np.concatenate([[0.0], np.cumsum(np.fromiter(losses, float))])
    window = min(window, len(sums) - 1)
    means: np.ndarray = (sums[window:] - sums[:-window]) / window
    return means
