"""Speeds of contestants that take turns: on a busy machine only their ratios within a round mean something."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from benchmarks.peers.batches import Corpus
from benchmarks.peers.contestant import PEERS, Contestant
from benchmarks.peers.racer import run_turn
from transduce.config import TransformerConfig


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


@final
@dataclass(frozen=True)
class Rules:
    """How often each contestant runs with which numbers of threads; ``warm_up`` steps before each turn do not count."""

    threads: Sequence[int]
    rounds: int
    steps: int
    warm_up: int


def race(contestants: Sequence[Contestant], config: TransformerConfig, corpus: Corpus, rules: Rules) -> list[Result]:
    """Every contestant with every number of threads in each round, in turn, each in a process of its own.

    In a round all train on the same batches.
    """
    entries = [(contestant, number) for contestant in contestants for number in rules.threads]
    speeds: list[list[float]] = [[] for _ in entries]
    for round_ in range(rules.rounds):
        batches = corpus.take(round_ * rules.steps, rules.steps)
        tokens = sum(batch.target_tokens for batch in batches)
        # There and back again, so that nobody always follows the same one.
        for place in list(range(len(entries)))[:: -1 if round_ % 2 else 1]:
            contestant, number = entries[place]
            speeds[place].append(tokens / run_turn(contestant, config, batches, number, rules.warm_up))
        print(f"round {round_ + 1} of {rules.rounds}", file=sys.stderr)
    return [
        Result(contestant, number, tuple(found)) for (contestant, number), found in zip(entries, speeds, strict=True)
    ]


def best_threads(results: Sequence[Result]) -> list[Result]:
    """Each contestant with the number of threads that it is fastest with."""
    best: dict[Contestant, Result] = {}
    for result in results:
        best[result.contestant] = max(best.get(result.contestant, result), result, key=lambda one: one.median)
    return list(best.values())


def best_peer(results: Sequence[Result], precision: str = "") -> Result:
    """The fastest of those that are not ours and train as we do, or of those in one precision."""
    peers = [one for one in results if one.contestant.family in PEERS and one.contestant.comparable]
    return max((one for one in peers if precision in one.contestant.precision), key=lambda one: one.median)
