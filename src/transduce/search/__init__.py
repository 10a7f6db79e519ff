"""Searching for outputs and scoring them: functions over the contract, blind to which model it is."""

from transduce.search.beam import Newcomers, Take, beam_search
from transduce.search.constraint import Constraint, Following, Proposals
from transduce.search.limits import NoRepeat, Prefixes, Without
from transduce.search.phrases import Containing
from transduce.search.scoring import score_targets
from transduce.search.settings import Hypothesis, LengthPenalty, NothingFoundError, Sampling, SearchSettings

__all__ = [
    "Constraint",
    "Containing",
    "Following",
    "Hypothesis",
    "LengthPenalty",
    "Newcomers",
    "NoRepeat",
    "NothingFoundError",
    "Prefixes",
    "Proposals",
    "Sampling",
    "SearchSettings",
    "Take",
    "Without",
    "beam_search",
    "score_targets",
]
