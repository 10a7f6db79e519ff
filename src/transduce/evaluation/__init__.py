"""Scores of outputs: strings in, figures out. Knows no torch."""

from transduce.evaluation.bootstrap import SAMPLES, SEED, Comparison, Resampled, check_resampling, paired_bootstrap
from transduce.evaluation.brackets import SHORT, BracketCounts, count_all, count_brackets
from transduce.evaluation.gleu import Gleu
from transduce.evaluation.line_mean import LineMean
from transduce.evaluation.metrics import Score, Scorer, corpus_score, make_scorer, score_with

__all__ = [
    "SAMPLES",
    "SEED",
    "SHORT",
    "BracketCounts",
    "Comparison",
    "Gleu",
    "LineMean",
    "Resampled",
    "Score",
    "Scorer",
    "check_resampling",
    "corpus_score",
    "count_all",
    "count_brackets",
    "make_scorer",
    "paired_bootstrap",
    "score_with",
]
