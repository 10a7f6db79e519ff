"""Scores of whole outputs against references, by sacreBLEU, each with the signature that makes it comparable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transduce.config import BadInputError

Metric = Literal["bleu", "chrf", "ter"]


@dataclass(frozen=True)
class Score:
    """A corpus-level score and how it was computed."""

    metric: str
    value: float
    signature: str


def corpus_score(metric: Metric, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Score a whole output: BLEU and chrF in 0 to 100, higher is better; TER in percent, lower is better.

    ``tokenize`` is BLEU's; "none" is for text that is tokenized already.

    Raises:
        BadInputError: The two differ in length, or are empty.
    """
    if len(hypotheses) != len(references):
        raise BadInputError(f"{len(hypotheses):,} outputs but {len(references):,} references: they must pair up")
    if not references:
        raise BadInputError("nothing to score: the reference is empty")
    if tokenize not in BLEU.TOKENIZERS:
        raise BadInputError(f"BLEU's tokenizer {tokenize!r} is unknown: choose from {', '.join(BLEU.TOKENIZERS)}")
    scorer = _scorer(metric, tokenize)
    score = scorer.corpus_score(list(hypotheses), [list(references)])
    return Score(metric, score.score, str(scorer.get_signature()))


def _scorer(metric: Metric, tokenize: str) -> SacreMetric:
    match metric:
        case "bleu":
            # The references are given as they are; "force" only silences a warning about tokenized text.
            return BLEU(tokenize=tokenize, force=True)
        case "chrf":
            return CHRF()
        case "ter":
            return TER()
        case _:
            assert_never(metric)
