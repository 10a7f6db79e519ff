"""Speeds of contestants that take turns: on a busy machine only their ratios within a round mean something."""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch

from benchmarks.peers.batches import Corpus
from benchmarks.peers.contestant import Contestant, TrainStep

RATE: Final = 1e-4  # of learning: any that lets the weights stay finite


@final
@dataclass(frozen=True)
class Result:
    """Target tokens a second, padding not counted, of one contestant with so many threads, round by round."""

    contestant: Contestant
    threads: int
    speeds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of all rounds."""
        return statistics.median(self.speeds)

    def over(self, other: "Result") -> float:
        """How many times as fast as the other: the median of the rounds' ratios."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.speeds, other.speeds, strict=True))


def race(
    contestants: Mapping[Contestant, TrainStep], threads: Sequence[int], corpus: Corpus, rounds: int, steps: int
) -> list[Result]:
    """Every contestant with every number of threads in each of ``rounds`` rounds of ``steps`` steps, in turn.

    In a round all train on the same batches. One round more comes first, and is not counted: it warms up.
    """
    entries = [(contestant, number) for contestant in contestants for number in threads]
    speeds: list[list[float]] = [[] for _ in entries]
    before = torch.get_num_threads()
    for round_ in range(rounds + 1):
        batches = corpus.take(round_ * steps, steps)
        # There and back again, so that nobody always follows the same one.
        for place in list(range(len(entries)))[:: -1 if round_ % 2 else 1]:
            contestant, number = entries[place]
            torch.set_num_threads(number)
            start = time.perf_counter()
            for batch in batches:
                contestants[contestant](batch, RATE)
            synchronize()
            seconds = time.perf_counter() - start
            if round_:
                speeds[place].append(sum(batch.target_tokens for batch in batches) / seconds)
        print(f"round {round_} of {rounds}", file=sys.stderr)
    torch.set_num_threads(before)
    return [Result(*entry, tuple(found)) for entry, found in zip(entries, speeds, strict=True)]


def synchronize() -> None:
    """Wait until the device has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def best_threads(results: Sequence[Result]) -> list[Result]:
    """Each contestant with the number of threads that it is fastest with."""
    best: dict[Contestant, Result] = {}
    for result in results:
        best[result.contestant] = max(best.get(result.contestant, result), result, key=lambda one: one.median)
    return list(best.values())


def best_peer(results: Sequence[Result]) -> Result:
    """The fastest of those that are not ours and train as we do."""
    peers = [one for one in results if one.contestant.family != "ours" and one.contestant.comparable]
    return max(peers, key=lambda one: one.median)
