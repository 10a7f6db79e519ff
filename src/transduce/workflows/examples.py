"""Test sets, and which of their lines are of similar length."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from transduce.bundle import find_model
from transduce.config import METRICS, BadInputError, Corpus, MetricKey, read_run
from transduce.data import name_corpus, read_corpus, read_pairs, read_treebank, text_flaw
from transduce.text import Tree
from transduce.workflows.run_directory import RunDirectory

_LENGTHS: Final = (5, 10, 15, 20, 30)  # words of the longest source of each group but the last


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

    def select(self, rows: Sequence[int]) -> "Examples":
        """These lines alone."""
        trees = None if self.trees is None else [self.trees[row] for row in rows]
        return Examples([self.sources[row] for row in rows], [self.references[row] for row in rows], trees, self.prefix)


@dataclass(frozen=True)
class LengthGroup:
    """The lines of a test set, counted from 0, whose sources have ``first`` to ``last`` words (None: and more)."""

    first: int
    last: int | None
    rows: list[int]


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
    examples = replace(examples, prefix=corpus.source_prefix)
    if corpus.trees is None:
        return examples
    first, last = corpus.lines or (1, None)
    trees = [placed.tree for placed in islice(read_treebank(corpus, folder), first - 1, last)]
    return replace(examples, trees=trees)


def full_pairs(examples: Examples) -> Examples:
    """Without what is no pair, such as an empty line, which training leaves out of dev's loss, too."""
    pairs = zip(examples.sources, examples.references, strict=True)
    return examples.select(
        [
            row
            for row, (source, target) in enumerate(pairs)
            if not text_flaw((source.removeprefix(examples.prefix), target))
        ]
    )


def group_by_length(examples: Examples) -> list[LengthGroup]:
    """The groups that there is a sentence of, the shortest first; without a word, a source is one of the shortest.

    What stands before each source is no word of it.
    """
    lengths = [len(source.removeprefix(examples.prefix).split()) for source in examples.sources]
    groups = []
    for first, behind in pairwise((0, *(last + 1 for last in _LENGTHS), math.inf)):
        if rows := [row for row, length in enumerate(lengths) if first <= length < behind]:
            groups.append(LengthGroup(max(1, int(first)), None if behind == math.inf else int(behind) - 1, rows))
    return groups


def _examples(pairs: Iterable[tuple[str, str]], name: object) -> Examples:
    rows = list(pairs)
    if not rows:
        raise BadInputError(f"{name}: is empty: nothing to evaluate")
    sources, references = (list(side) for side in zip(*rows, strict=True))
    return Examples(sources, references)
