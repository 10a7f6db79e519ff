"""How to search, and what it finds."""

from dataclasses import dataclass
from typing import Literal, assert_never

PenaltyKind = Literal["gnmt", "none"]


@dataclass(frozen=True)
class LengthPenalty:
    """What a log-probability is divided by; |y| counts the end symbol.

    gnmt: ((5 + |y|) / 6)^alpha (Wu et al. 2016, section 7). none: 1.
    """

    kind: PenaltyKind = "gnmt"
    alpha: float = 0.6

    def __call__(self, length: int) -> float:
        """The divisor for an output of ``length`` symbols."""
        match self.kind:
            case "gnmt":
                return float(((5 + length) / 6) ** self.alpha)
            case "none":
                return 1.0
            case _:
                assert_never(self.kind)


@dataclass(frozen=True)
class SearchSettings:
    """A search over ids. ``forbidden`` symbols are never written (padding, begin, unknown)."""

    begin_id: int
    end_id: int
    forbidden: tuple[int, ...] = ()
    beam_size: int = 4
    n_best: int = 1
    penalty: LengthPenalty = LengthPenalty()


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its ids without the end symbol, its natural log-probability with it, and its score."""

    ids: tuple[int, ...]
    log_probability: float
    score: float
