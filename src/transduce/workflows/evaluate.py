"""Scores of a model on a test set."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from transduce.config import BadInputError
from transduce.data import read_pairs
from transduce.evaluation import Score, corpus_score
from transduce.inference import Translator

EvaluationMetric = Literal["bleu", "chrf", "ter", "perplexity"]


def evaluate(
    translator: Translator,
    source: Path,
    reference: Path,
    metrics: Sequence[EvaluationMetric],
    *,
    beam_size: int | None = None,
    tokenize: str = "13a",
) -> list[Score]:
    """Translate ``source`` and score it against ``reference``.

    Raises:
        BadInputError: A file cannot be read, or the two differ in length, or are empty.
    """
    pairs = list(read_pairs(source, reference))
    if not pairs:
        raise BadInputError(f"{source}: is empty: nothing to evaluate")
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    outputs: list[str] = []
    if set(metrics) - {"perplexity"}:
        outputs = [translation.text for translation in translator.translate(sources, beam_size=beam_size)]
    return [
        _perplexity(translator, sources, references)
        if metric == "perplexity"
        else corpus_score(metric, outputs, references, tokenize)
        for metric in metrics
    ]


def _perplexity(translator: Translator, sources: list[str], references: list[str]) -> Score:
    tokens = translator.count_tokens(references)
    total = sum(translator.score(sources, references))
    return Score("perplexity", math.exp(-total / tokens), f"per-token|tokens:{tokens}|end-symbol:counted")
