"""Searching for outputs and scoring them: functions over the contract, blind to which model it is."""

from transduce.search.beam import Take, beam_search
from transduce.search.constraint import Bounding, Constraint, ConstraintState, Proposals, Restriction
from transduce.search.limits import NoRepeat, Offered, Prefixes, Without
from transduce.search.phrases import Containing
from transduce.search.recording import Recorder, Round
from transduce.search.scoring import score_targets, score_tokens
from transduce.search.settings import (
    Cancelled,
    Failure,
    Hypothesis,
    LengthPenalty,
    NothingFound,
    Outcome,
    Request,
    Sampling,
    SearchSettings,
    TooLittleMemory,
)
from transduce.search.tree import NextSymbol, NodeState, SearchNode, SearchTree, build_tree
from transduce.search.well_formed import TreeSymbols, WellFormed

__all__ = [
    "Bounding",
    "Cancelled",
    "Constraint",
    "ConstraintState",
    "Containing",
    "Failure",
    "Hypothesis",
    "LengthPenalty",
    "NextSymbol",
    "NoRepeat",
    "NodeState",
    "NothingFound",
    "Offered",
    "Outcome",
    "Prefixes",
    "Proposals",
    "Recorder",
    "Request",
    "Restriction",
    "Round",
    "Sampling",
    "SearchNode",
    "SearchSettings",
    "SearchTree",
    "Take",
    "TooLittleMemory",
    "TreeSymbols",
    "WellFormed",
    "Without",
    "beam_search",
    "build_tree",
    "score_targets",
    "score_tokens",
]
