"""Searching for outputs and scoring them: functions over the contract, blind to which model it is."""

from transduce.search.beam import beam_search
from transduce.search.scoring import score_targets
from transduce.search.settings import Hypothesis, LengthPenalty, SearchSettings

__all__ = ["Hypothesis", "LengthPenalty", "SearchSettings", "beam_search", "score_targets"]
