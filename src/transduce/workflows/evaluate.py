"""Scores of a model on a test set, alone or beside another system's."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

from transduce.bundle import find_model
from transduce.config import METRICS, BadInputError, Corpus, MetricKey, Precision, read_run
from transduce.data import name_corpus, read_corpus, read_lines, read_pairs, read_treebank
from transduce.evaluation import SAMPLES, SEED, Comparison, Score, Scorer, make_scorer, paired_bootstrap, score_with
from transduce.inference import Parser, Translator, load
from transduce.text import Tree
from transduce.workflows.run_directory import RunDirectory

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples:
    """A test set: line i of the sources should become line i of the references; of a treebank, ``trees`` are given.

    ``prefix`` is what stands before each of the sources: a corpus's tag.
    """

    sources: list[str]
    references: list[str]
    trees: list[Tree] | None = None
    prefix: str = ""

    def references_of(self, metric: MetricKey) -> list[str]:
        """What outputs are compared with: texts, or trees in brackets.

        Raises:
            BadInputError: The metric is of trees, and the test set is no treebank.
        """
        if METRICS[metric].needs != "trees":
            return self.references
        if self.trees is None:
            raise BadInputError(
                f"{metric}: the test set is no treebank: give one as --reference, without --source, or name one in the "
                f'run file (trees = "FILE")'
            )
        return [str(tree) for tree in self.trees]


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


def read_examples(source: Path, reference: Path) -> Examples:
    """The test set of two files.

    Raises:
        BadInputError: A file cannot be read, or the two differ in length, or are empty.
    """
    return _examples(read_pairs(source, reference), source)


def read_treebank_examples(treebank: Path) -> Examples:
    """The test set of a treebank: a file of trees, or a folder of such.

    Raises:
        BadInputError: It cannot be read, or a tree in it is none.
    """
    return read_corpus_examples(Corpus(trees=str(treebank.absolute())), treebank.parent)


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
    return replace(examples, trees=trees, prefix=corpus.source_prefix)


def evaluate(translator: Translator, examples: Examples, measures: Measures, **writing: Unpack[Writing]) -> list[Score]:
    """Translate the sources and score the outputs against the references.

    Raises:
        BadInputError: A setting of the measures is wrong.
        TransduceError: A metric's extra is not installed.
    """
    scorers = _scorers(measures, examples)
    outputs = _outputs_for(scorers, translator, examples, writing)
    return [
        score_with(scorers[metric], metric, outputs[metric], examples.references_of(metric))
        if metric in scorers
        else _of_probabilities(metric, translator, examples)
        for metric in measures.metrics
    ]


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


def _examples(pairs: Iterable[tuple[str, str]], name: object) -> Examples:
    rows = list(pairs)
    if not rows:
        raise BadInputError(f"{name}: is empty: nothing to evaluate")
    sources, references = (list(side) for side in zip(*rows, strict=True))
    return Examples(sources, references)


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


def _of_probabilities(metric: MetricKey, translator: Translator, examples: Examples) -> Score:
    """The loss of the references in nats per token, or their perplexity."""
    tokens = translator.count_tokens(examples.references)
    loss = -sum(translator.score(examples.sources, examples.references)) / tokens
    value = math.exp(loss) if metric == "perplexity" else loss
    return Score(metric, value, f"per-token|tokens:{tokens}|end-symbol:counted")
