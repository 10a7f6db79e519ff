"""Scores of a model on a test set, alone or beside another system's."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from transduce.bundle import find_model
from transduce.config import METRICS, BadInputError, Corpus, MetricKey, Precision, read_run
from transduce.data import name_corpus, read_corpus, read_lines, read_pairs, read_treebank
from transduce.evaluation import (
    SAMPLES,
    SEED,
    SHORT,
    Comparison,
    Score,
    Scorer,
    count_all,
    make_scorer,
    paired_bootstrap,
    score_with,
)
from transduce.inference import Parser, Translator, load
from transduce.text import Tree
from transduce.workflows.run_directory import RunDirectory

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples:
    """A test set: line i of the sources should become line i of the references, which may be of ``trees``."""

    sources: list[str]
    references: list[str]
    trees: list[Tree] | None = None


@dataclass(frozen=True)
class Measures:
    """What is measured, in that order, and how."""

    metrics: Sequence[MetricKey]
    tokenize: str = "13a"
    comet_model: Path | None = None


def read_examples(source: Path, reference: Path) -> Examples:
    """The test set of two files.

    Raises:
        BadInputError: A file cannot be read, or the two differ in length, or are empty.
    """
    return _examples(read_pairs(source, reference), source)


def read_own_examples(run: Path) -> Examples:
    """The test set that a run directory names in its ``run.toml``.

    Raises:
        BadInputError: It is no run with a model yet, names no test set, or that cannot be read or is empty.
    """
    find_model(run)
    path = RunDirectory(run).config
    data = read_run(path).data if path.is_file() else None
    if data is None or data.test is None:
        raise BadInputError(
            f"{run}: has no test set of its own (data.test in a run's run.toml): give --source and --reference"
        )
    return read_corpus_examples(data.test, data.folder)


def read_corpus_examples(corpus: Corpus, folder: Path) -> Examples:
    """A corpus as a test set.

    Raises:
        BadInputError: It cannot be read, or is empty.
    """
    examples = _examples(read_corpus(corpus, folder), name_corpus(corpus, folder))
    if corpus.trees is None:
        return examples
    first, last = corpus.lines or (1, None)
    trees = [placed.tree for placed in islice(read_treebank(corpus, folder), first - 1, last)]
    return replace(examples, trees=trees)


def evaluate(
    translator: Translator, examples: Examples, measures: Measures, *, beam_size: int | None = None
) -> list[Score]:
    """Translate the sources and score the outputs against the references.

    Raises:
        BadInputError: A setting of the measures is wrong.
        TransduceError: A metric's extra is not installed.
    """
    scorers = _scorers(measures, examples.sources)
    outputs = translate_all(translator, examples.sources, beam_size) if scorers else []
    return [
        score_with(scorers[metric], metric, outputs, examples.references)
        if metric in scorers
        else score_trees(translator, examples, beam_size)
        if METRICS[metric].needs == "trees"
        else _of_probabilities(metric, translator, examples)
        for metric in measures.metrics
    ]


def score_trees(
    translator: Translator, examples: Examples, beam_size: int | None = None, *, first_number: int | None = 1
) -> Score:
    """Parse the sentences of a treebank and count the brackets; a sentence without a tree has none right.

    ``first_number`` is as in ``Translator.translate``.

    Raises:
        BadInputError: The test set is no treebank, or the model writes no trees.
    """
    if examples.trees is None:
        raise BadInputError('brackets: the test set is no treebank: name one in the run file (trees = "FILE")')
    parses = Parser(translator).parse([tree.words for tree in examples.trees], beam_size, first_number=first_number)
    trees = [each.tree for each in parses]
    counts = count_all(zip(examples.trees, trees, strict=True))
    short = count_all(pair for pair in zip(examples.trees, trees, strict=True) if len(pair[0].words) <= SHORT)
    figures = {
        "precision": counts.precision,
        "recall": counts.recall,
        "exact": counts.exact_match,
        "no-crossing": counts.no_crossing,
        f"f1-to-{SHORT}-words": short.f1,
    }
    shown = "|".join(f"{name}:{value:.2f}" for name, value in figures.items())
    rules = f"rules:COLLINS.prm|sentences:{counts.sentences}|failures:{counts.failures}"
    return Score("brackets", counts.f1, f"{rules}|{shown}")


def compare(
    translator: Translator,
    examples: Examples,
    measures: Measures,
    other: Path,
    *,
    precision: Precision = "auto",
    device: str | None = None,
    beam_size: int | None = None,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """Score the outputs beside another system's of the same sources, by paired bootstrap resampling.

    ``other`` is a text file of the other's outputs, or a model or run directory, which then translates too, in the same
    number format (``precision``) and on the same ``device``.

    Raises:
        BadInputError: As ``evaluate`` and ``paired_bootstrap``; or a metric is none of outputs; or the other can be
            neither read nor loaded, or has more or fewer outputs than there are sources.
        TransduceError: A metric's extra is not installed.
    """
    if of_models := [metric for metric in measures.metrics if METRICS[metric].needs in {"probabilities", "trees"}]:
        raise BadInputError(
            f"{of_models[0]} is of a model and not of its outputs: leave it out of --metric with --against"
        )
    scorers = _scorers(measures, examples.sources)
    theirs = _other_outputs(other, examples.sources, precision, device, beam_size)
    ours = translate_all(translator, examples.sources, beam_size)
    return paired_bootstrap(scorers, examples.references, ours, theirs, samples=samples, seed=seed)


def _other_outputs(
    other: Path, sources: list[str], precision: Precision, device: str | None, beam_size: int | None
) -> list[str]:
    if other.is_dir():
        return translate_all(load(other, precision, device), sources, beam_size)
    outputs = list(read_lines(other))
    if len(outputs) != len(sources):
        raise BadInputError(
            f"{other}: has {len(outputs):,} lines for {len(sources):,} sources: line i is the output for source i"
        )
    return outputs


def translate_all(
    translator: Translator, sources: list[str], beam_size: int | None = None, *, first_number: int | None = 1
) -> list[str]:
    """The outputs of a test set's sources; where there is none, an empty one counts, and a warning says so.

    ``first_number`` is as in ``Translator.translate``.
    """
    found = translator.translate(sources, beam_size, first_number=first_number, errors="return")
    failed = [f"source {number:,}: {each.error}" for number, each in enumerate(found, 1) if each.error is not None]
    if failed:
        more = f" (and {len(failed) - 1:,} more)" if len(failed) > 1 else ""
        _log.warning(f"{failed[0]}{more}: counted as an empty output")
    return [each.text for each in found]


def _examples(pairs: Iterable[tuple[str, str]], name: object) -> Examples:
    rows = list(pairs)
    if not rows:
        raise BadInputError(f"{name}: is empty: nothing to evaluate")
    sources, references = (list(side) for side in zip(*rows, strict=True))
    return Examples(sources, references)


def _scorers(measures: Measures, sources: Sequence[str]) -> dict[MetricKey, Scorer]:
    """What compares outputs with references; made before anything is translated, so that errors come first."""
    return {
        metric: make_scorer(metric, measures.tokenize, measures.comet_model, sources)
        for metric in measures.metrics
        if METRICS[metric].needs in {"outputs", "trained"}
    }


def _of_probabilities(metric: MetricKey, translator: Translator, examples: Examples) -> Score:
    """The loss of the references in nats per token, or their perplexity."""
    tokens = translator.count_tokens(examples.references)
    loss = -sum(translator.score(examples.sources, examples.references)) / tokens
    value = math.exp(loss) if metric == "perplexity" else loss
    return Score(metric, value, f"per-token|tokens:{tokens}|end-symbol:counted")
