"""Scores of outputs: strings in, figures out. Knows no torch."""

from transduce.evaluation.metrics import Metric, Score, corpus_score

__all__ = ["Metric", "Score", "corpus_score"]
