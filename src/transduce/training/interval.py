"""The steps since the last line of ``metrics.jsonl``: what becomes the next one."""

import time
from dataclasses import dataclass, replace
from typing import Any, final

import torch

from transduce.training.health import Examined
from transduce.training.processes import Processes
from transduce.training.session import Sums
from transduce.training.step import Rewards, Taken


@final
@dataclass(frozen=True)
class Interval:
    """Steps in a row: their losses, the norms of their gradients, and when the first of them began.

    What was skipped is in none of the means, but for the rewards of outputs, which were drawn before.
    """

    sums: Sums
    clock: float
    gradient_norms: float = 0.0  # summed over the updates, as far as the device has told
    updates: int = 0
    rewards: Rewards | None = None  # where outputs are learned from

    @classmethod
    def begin(cls, device: torch.device) -> "Interval":
        """No steps yet."""
        return cls(Sums.zero(device), time.perf_counter())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.clock

    def add(self, taken: Taken, tokens: int) -> "Interval":
        """A step more, of so many target tokens; the device may be at work on it."""
        rewards = self.rewards
        if taken.rewards is not None:
            rewards = taken.rewards if rewards is None else rewards + taken.rewards
        return replace(self, sums=self.sums.add(taken.losses, tokens, taken.gradient_norm.isfinite()), rewards=rewards)

    def examine(self, examined: Examined) -> "Interval":
        """What the device has told of one of the steps."""
        if not examined.finite:
            return replace(self, sums=self.sums.without(examined.tokens))
        return replace(self, gradient_norms=self.gradient_norms + examined.gradient_norm, updates=self.updates + 1)

    def own_figures(self, processes: Processes) -> dict[str, Any]:
        """What only the steps of a training have, as ``metrics.jsonl`` has it; no norm where all were skipped."""
        norm = {"gradient_norm": self.gradient_norms / self.updates} if self.updates else {}
        return self.sums.own_figures(processes) | self._rewards(processes) | norm

    def _rewards(self, processes: Processes) -> dict[str, float]:
        """Of a pair in the mean: the reward of its outputs, and their expected risk where that is the objective."""
        if (own := self.rewards) is None:
            return {}
        pairs, reward, risk = processes.sum([own.pairs, own.reward, own.risk or 0.0])
        return {"reward": reward / max(1, pairs)} | ({} if own.risk is None else {"risk": risk / max(1, pairs)})
