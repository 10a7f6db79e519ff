"""Scores of a model on a test set, alone or beside another system's."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from transduce.config import METRICS, BadInputError, MetricKey, Precision
from transduce.config.metrics import perplexity
from transduce.data import read_lines
from transduce.evaluation import (
    SAMPLES,
    SEED,
    Comparison,
    Score,
    Scorer,
    check_resampling,
    make_scorer,
    paired_bootstrap,
    score_with,
)
from transduce.inference import Parser, Translator, load
from transduce.workflows.examples import Examples, LengthGroup, group_by_length

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measures:
    """What is measured, in that order, and how."""

    metrics: Sequence[MetricKey]
    tokenize: str = "13a"
    comet_model: Path | None = None


class Writing(TypedDict, total=False):
    """How a test set is translated, in place of the model's own settings; as in ``Translator.translate``."""

    beam_size: int | None
    replace_unknown: bool | None
    dictionary: Mapping[str, str] | None


def evaluate(translator: Translator, examples: Examples, measures: Measures, **writing: Unpack[Writing]) -> list[Score]:
    """Translate the sources and score the outputs against the references.

    Raises:
        BadInputError: A setting of the measures is wrong.
        TransduceError: A metric's extra is not installed.
    """
    (scores,) = _score_groups(translator, examples, measures, [range(len(examples.sources))], writing)
    return scores


def evaluate_by_length(
    translator: Translator, examples: Examples, measures: Measures, **writing: Unpack[Writing]
) -> tuple[list[Score], list[tuple[LengthGroup, list[Score]]]]:
    """The scores of all, and those of each group of sources of similar length; each source is translated once.

    Raises:
        BadInputError: A setting of the measures is wrong, or COMET is among them.
        TransduceError: A metric's extra is not installed.
    """
    if "comet" in measures.metrics:
        raise BadInputError("comet: is not known by length: leave it out of --metric with --by-length")
    groups = group_by_length(examples)
    rows = [range(len(examples.sources)), *(group.rows for group in groups)]
    scores, *others = _score_groups(translator, examples, measures, rows, writing)
    return scores, [*zip(groups, others, strict=True)]


def compare(
    translator: Translator,
    examples: Examples,
    measures: Measures,
    other: Path,
    *,
    precision: Precision = "auto",
    device: str | None = None,
    samples: int = SAMPLES,
    seed: int = SEED,
    **writing: Unpack[Writing],
) -> list[Comparison]:
    """Score the outputs beside another system's of the same sources, by paired bootstrap resampling.

    ``other`` is a file of the other's outputs (texts, or trees in brackets, one a line), or a model or run directory,
    which then translates too, in the same number format (``precision``) and on the same ``device``.

    Raises:
        BadInputError: As ``evaluate`` and ``paired_bootstrap``; or a metric is none of outputs; or the other can be
            neither read nor loaded, or has more or fewer outputs than there are sources.
        TransduceError: A metric's extra is not installed.
    """
    check_resampling(samples, seed)
    if of_models := [metric for metric in measures.metrics if METRICS[metric].needs == "probabilities"]:
        raise BadInputError(
            f"{of_models[0]} is of a model and not of its outputs: leave it out of --metric with --against"
        )
    scorers = _scorers(measures, examples)
    if other.is_dir():
        theirs = _outputs_for(scorers, load(other, precision, device), examples, writing)
    else:
        theirs = dict.fromkeys(scorers, _read_outputs(other, len(examples.sources)))
    ours = _outputs_for(scorers, translator, examples, writing)
    return [
        comparison
        for metric, scorer in scorers.items()
        for comparison in paired_bootstrap(
            {metric: scorer},
            examples.references_of(metric),
            ours[metric],
            theirs[metric],
            samples=samples,
            seed=seed,
        )
    ]


def _score_groups(
    translator: Translator, examples: Examples, measures: Measures, groups: Sequence[Sequence[int]], writing: Writing
) -> list[list[Score]]:
    """The scores of each group of lines."""
    scorers = _scorers(measures, examples)
    outputs = _outputs_for(scorers, translator, examples, writing)
    known: list[float] = []
    if len(scorers) < len(measures.metrics):
        known = translator.score(examples.sources, examples.references)

    def score(metric: MetricKey, rows: Sequence[int]) -> Score:
        some = examples.select(rows)
        if metric in scorers:
            lines = [outputs[metric][row] for row in rows]
            return score_with(scorers[metric], metric, lines, some.references_of(metric))
        return _of_probabilities(metric, translator.count_tokens(some.references), [known[row] for row in rows])

    return [[score(metric, rows) for metric in measures.metrics] for rows in groups]


def _read_outputs(path: Path, count: int) -> list[str]:
    outputs = list(read_lines(path))
    if len(outputs) != count:
        raise BadInputError(
            f"{path}: has {len(outputs):,} lines for {count:,} sources: line i is the output for source i"
        )
    return outputs


def _outputs_for(
    metrics: Iterable[MetricKey], translator: Translator, examples: Examples, writing: Writing
) -> dict[MetricKey, list[str]]:
    """What each metric compares with references: a test set is translated once, and parsed once."""
    made: dict[bool, list[str]] = {}
    for metric in metrics:
        trees = METRICS[metric].needs == "trees"
        if trees and trees not in made:
            made[trees] = parse_all(translator, examples, writing.get("beam_size"))
        elif trees not in made:
            made[trees] = translate_all(translator, examples, **writing)
    return {metric: made[METRICS[metric].needs == "trees"] for metric in metrics}


def parse_all(
    translator: Translator, examples: Examples, beam_size: int | None = None, *, first_number: int | None = 1
) -> list[str]:
    """The trees of a treebank's sentences, in brackets; where there is none, an empty line counts.

    ``first_number`` is as in ``Translator.translate``.

    Raises:
        BadInputError: The model writes no trees.
    """
    words = [tree.words for tree in examples.trees or ()]
    parses = Parser(translator).parse(words, beam_size, prefix=examples.prefix, first_number=first_number)
    return ["" if each.tree is None else str(each.tree) for each in parses]


def translate_all(
    translator: Translator,
    examples: Examples,
    beam_size: int | None = None,
    *,
    first_number: int | None = 1,
    replace_unknown: bool | None = None,
    dictionary: Mapping[str, str] | None = None,
) -> list[str]:
    """The outputs of a test set's sources; where there is none, an empty one counts, and a warning says so.

    The others are as in ``Translator.translate``.
    """
    found = translator.translate(
        examples.sources,
        beam_size,
        first_number=first_number,
        errors="return",
        replace_unknown=replace_unknown,
        dictionary=dictionary,
    )
    failed = [f"source {number:,}: {each.error}" for number, each in enumerate(found, 1) if each.error is not None]
    if failed:
        more = f" (and {len(failed) - 1:,} more)" if len(failed) > 1 else ""
        _log.warning(f"{failed[0]}{more}: counted as an empty output")
    return [each.text for each in found]


def _scorers(measures: Measures, examples: Examples) -> dict[MetricKey, Scorer]:
    """What compares outputs with references; made before anything is translated, so that errors come first."""
    scorers = {
        metric: make_scorer(metric, measures.tokenize, measures.comet_model, examples.sources)
        for metric in measures.metrics
        if METRICS[metric].needs != "probabilities"
    }
    for metric in scorers:
        examples.references_of(metric)
    return scorers


def _of_probabilities(metric: MetricKey, tokens: int, log_probabilities: Iterable[float]) -> Score:
    """The loss of references in nats per token, or their perplexity."""
    loss = -sum(log_probabilities) / tokens
    value = perplexity(loss) if metric == "perplexity" else loss
    return Score(metric, value, f"per-token|tokens:{tokens}|end-symbol:counted")
