"""What a search is asked for, and what it finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never, final

from transduce.config import LengthPenaltyKind, Stopping
from transduce.models import Shortlist
from transduce.search.constraint import Bounding, Constraint
from transduce.search.recording import Recorder


@dataclass(frozen=True)
class LengthPenalty:
    """What a log-probability is divided by; |y| counts the end symbol.

    gnmt: ((5 + |y|) / 6)^alpha (Wu et al. 2016, section 7). marian: |y|^alpha. none: 1.
    """

    kind: LengthPenaltyKind = "gnmt"
    alpha: float = 0.6

    def __call__(self, length: int) -> float:
        """The divisor for an output of ``length`` symbols."""
        match self.kind:
            case "gnmt":
                return float(((5 + length) / 6) ** self.alpha)
            case "marian":
                return float(length**self.alpha)
            case "none":
                return 1.0
            case _:
                assert_never(self.kind)


@dataclass(frozen=True)
class Sampling:
    """Outputs by chance: each symbol is drawn from softmax(log p / temperature).

    With ``top_k``, from the so many most probable symbols; with ``top_p``, from the fewest most probable ones whose
    probabilities sum to that or more. Both: ``top_k`` first. What is drawn follows from the seed, the sentence's
    number, the sample's and the position, never from the batch.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1


@dataclass(frozen=True)
class SearchSettings:
    """How to search for one sentence. ``forbidden`` symbols are never written (padding, begin, unknown).

    ``stopping``: ``exact`` ends when no open hypothesis can still beat the finished ones, ``full_beam`` as soon as
    ``beam_size`` hypotheses have ended. ``min_length`` leaves the end symbol out.

    ``coverage`` is the beta of Wu et al. (2016, section 7): beta sum_i log(min(sum_j p_ij, 1)) is added to the score of
    what has ended, p_ij being how the j-th symbol's step weighs source symbol i in the last layer, mean over the heads.

    ``diversity`` is the gamma of Li, Monroe and Jurafsky (2016): in each round, the k-th best continuation of a
    hypothesis is ranked as if its log-probability were gamma (k - 1) lower.

    With ``sampling``, ``beam_size`` samples are drawn, each on its own.

    With a ``shortlist``, a sentence is written with the symbols of its list alone, and probabilities are shares among
    these; what ``constraints`` may force, and the end symbol, are always in it.

    A ``recorder`` writes every round down; outputs and scores are the same with it, bit for bit.
    """

    begin_id: int
    end_id: int
    forbidden: tuple[int, ...] = ()
    beam_size: int = 4
    n_best: int = 1
    penalty: LengthPenalty = LengthPenalty()
    stopping: Stopping = "exact"
    min_length: int = 0
    coverage: float = 0.0
    diversity: float = 0.0
    sampling: Sampling | None = None
    constraints: tuple[Constraint, ...] = ()
    shortlist: Shortlist | None = None
    recorder: Recorder | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing is asked for but the most probable outputs, by a length penalty and within limits.

        Among these may be a constraint that bounds what comes next: probability alone then decides on places, too.
        """
        return not (
            len(self.constraints) > 1
            or not all(isinstance(each, Bounding) and each.bounds for each in self.constraints)
            or self.sampling is not None
            or self.coverage
            or self.diversity
            or self.recorder is not None
        )


@final
@dataclass(eq=False)
class Request:
    """A sentence to search for: its source's ids, end symbol included, and how.

    ``limit`` is the longest output allowed, end symbol included: at its limit a hypothesis must end. ``number`` is what
    constraints are told and what samples follow from; requests of one search may have the same. ``unread`` symbols at
    the source's end are read by no model of the search, and so looked at by none.

    ``cancelled`` may be made true by any thread at any time: the search then drops the sentence after the round that it
    is in, or within a few milliseconds where a model makes rounds by itself.
    """

    source: Sequence[int]
    limit: int
    settings: SearchSettings
    number: int = 0
    cancelled: bool = False
    unread: int = 0

    @property
    def longest(self) -> int:
        """The limit, which leaves room for the end symbol at least."""
        return max(self.limit, 1)


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its ids without the end symbol, its natural log-probability with it, and its score."""

    ids: tuple[int, ...]
    log_probability: float
    score: float


@dataclass(frozen=True)
class NothingFound:
    """A sentence has no output of at most ``limit`` symbols, end symbol counted, that is what it has to be."""

    limit: int


@dataclass(frozen=True)
class TooLittleMemory:
    """Memory is too small for a sentence, even alone; ``reason`` is what the allocator said."""

    reason: str


@dataclass(frozen=True)
class Cancelled:
    """Its caller has withdrawn the request."""


# Why a sentence has no output: its own matter, not that of the others.
Failure = NothingFound | TooLittleMemory | Cancelled

# A sentence's outputs, best first, or why it has none.
Outcome = list[Hypothesis] | Failure


def outcome(request: Request, outputs: list[Hypothesis]) -> Outcome:
    """What becomes of a request whose sentence leaves a search with these outputs."""
    return Cancelled() if request.cancelled else outputs or NothingFound(request.longest)
