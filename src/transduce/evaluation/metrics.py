"""Scores of whole outputs against references, each with the signature that makes it comparable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import assert_never

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transduce.config import METRICS, BadInputError, MetricKey
from transduce.evaluation.bracket_f1 import BracketF1
from transduce.evaluation.comet import make_comet_scorer
from transduce.evaluation.compounds import COMPOUNDS, split_compounds
from transduce.evaluation.line_mean import LineMean

Scorer = SacreMetric | LineMean | BracketF1


@dataclass(frozen=True)
class Score:
    """A corpus-level score, how it was computed, and ``details``: what else was counted on the way."""

    metric: MetricKey
    value: float
    signature: str
    details: Mapping[str, float] = field(default_factory=dict)


def corpus_score(
    metric: MetricKey, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> Score:
    """Score a whole output, in 0 to 100 but for TER, which has no end; of TER alone lower is better.

    ``exact`` is the share of outputs that equal their reference, ``ter`` the edits for each hundred words of it;
    ``brackets`` are of trees as text. ``tokenize`` is BLEU's; "none" is for text that is tokenized already; with
    "+compounds" behind it, hyphenated compounds are split, as tensor2tensor's script does for German.

    Raises:
        BadInputError: The two differ in length, or are empty, or a text is not of what the metric is of.
    """
    return score_with(make_scorer(metric, tokenize), metric, hypotheses, references)


def score_with(scorer: Scorer, metric: MetricKey, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """As ``corpus_score``, by a scorer that is there already; the score goes by the name ``metric``."""
    check_pairs(hypotheses, references)
    score = scorer.corpus_score(list(hypotheses), [list(references)])
    details = scorer.details if isinstance(scorer, BracketF1) else {}
    return Score(metric, score.score, str(scorer.get_signature()), details)


def make_scorer(
    metric: MetricKey, tokenize: str = "13a", comet_model: Path | None = None, sources: Sequence[str] = ()
) -> Scorer:
    """What computes a metric of outputs; ``comet_model`` and ``sources`` are what COMET needs.

    Raises:
        BadInputError: There is no such tokenizer, or COMET's model cannot be loaded, or the metric is none of outputs.
        TransduceError: The extra ``comet`` is asked for and not installed.
    """
    if metric not in METRICS:
        nearest = get_close_matches(str(metric).lower(), METRICS, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose from {', '.join(METRICS)}"
        raise BadInputError(f"there is no metric {metric!r}: {hint}")
    name = tokenize.removesuffix(COMPOUNDS)
    if name not in BLEU.TOKENIZERS:
        raise BadInputError(
            f"BLEU's tokenizer {tokenize!r} is unknown: choose from {', '.join(BLEU.TOKENIZERS)}, each with "
            f"{COMPOUNDS} behind it or without"
        )
    match metric:
        case "bleu":
            # The references are given as they are; "force" only silences a warning about tokenized text.
            bleu = BLEU(tokenize=name, force=True)
            return bleu if name == tokenize else split_compounds(bleu)
        case "chrf":
            return CHRF()
        case "ter":
            return TER()
        case "exact":
            # In sacreBLEU's words: compared as they are, letter by letter.
            return LineMean("exact", _percent_equal, {"case": "mixed", "tok": "none"})
        case "comet":
            return make_comet_scorer(comet_model, sources)
        case "loss" | "perplexity":
            raise BadInputError(f"{metric} is of a model and not of its outputs: they alone cannot be scored by it")
        case "brackets":
            return BracketF1()
        case _:
            assert_never(metric)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that there is a reference for each output.

    Raises:
        BadInputError: The two differ in length, or are empty; or one of them is no list of strings.
    """
    for name, texts in (("outputs", hypotheses), ("references", references)):
        if (
            isinstance(texts, str)
            or not isinstance(texts, Sequence)
            or not all(isinstance(each, str) for each in texts)
        ):
            raise BadInputError(f"the {name} are no list of strings (of translations, give the text of each)")
    if len(hypotheses) != len(references):
        raise BadInputError(f"{len(hypotheses):,} outputs but {len(references):,} references: they must pair up")
    if not references:
        raise BadInputError("nothing to score: the reference is empty")


def _percent_equal(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    return [100.0 * (output == reference) for output, reference in zip(hypotheses, references, strict=True)]
