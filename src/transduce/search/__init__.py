"""Searching for outputs and scoring them: functions over the contract, blind to which model it is."""

from transduce.search.beam import Newcomers, Take, beam_search
from transduce.search.constraint import Constraint, ConstraintState, Proposals
from transduce.search.limits import NoRepeat, Prefixes, Without
from transduce.search.phrases import Containing
from transduce.search.scoring import score_targets
from transduce.search.settings import (
    Failure,
    Hypothesis,
    LengthPenalty,
    NothingFound,
    Sampling,
    SearchSettings,
    TooLittleMemory,
)

__all__ = [
    "Constraint",
    "ConstraintState",
    "Containing",
    "Failure",
    "Hypothesis",
    "LengthPenalty",
    "Newcomers",
    "NoRepeat",
    "NothingFound",
    "Prefixes",
    "Proposals",
    "Sampling",
    "SearchSettings",
    "Take",
    "TooLittleMemory",
    "Without",
    "beam_search",
    "score_targets",
]
