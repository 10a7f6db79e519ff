"""Scores of outputs: strings in, figures out. Knows no torch."""

from transduce.evaluation.bootstrap import SAMPLES, SEED, Comparison, Resampled, paired_bootstrap
from transduce.evaluation.comet import make_comet_scorer
from transduce.evaluation.line_mean import LineMean
from transduce.evaluation.metrics import Metric, Score, Scorer, corpus_score, make_scorer, score_with

__all__ = [
    "SAMPLES",
    "SEED",
    "Comparison",
    "LineMean",
    "Metric",
    "Resampled",
    "Score",
    "Scorer",
    "corpus_score",
    "make_comet_scorer",
    "make_scorer",
    "paired_bootstrap",
    "score_with",
]
