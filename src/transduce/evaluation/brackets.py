"""Labelled brackets of phrase structure trees, counted as evalb does with its COLLINS.prm (Collins 1997).

Roots and punctuation are left out, ADVP and PRT are one label, and words are those of the gold tree, whose tags decide
which are punctuation. Every sentence counts: one without an output has no bracket right.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

from transduce.config import BadInputError
from transduce.text import Tree

# COLLINS.prm's DELETE_LABEL, and what else roots are called.
_PUNCTUATION: Final = frozenset({",", ":", "``", "''", ".", "-NONE-"})
_ROOTS: Final = frozenset({"", "TOP", "ROOT", "S1"})
_EQUAL: Final = {"PRT": "ADVP"}
SHORT: Final = 40  # words; evalb tells such sentences apart (CUTOFF_LEN)

# Label, first word and the one behind the last, punctuation not counted.
Bracket = tuple[str, int, int]


@final
@dataclass(frozen=True)
class BracketCounts:
    """What is counted of a sentence, or of several together; by label where it says so.

    ``crossing`` are brackets of the output that cross one of the gold tree's; ``tagged`` are words with the right tag,
    punctuation left out, of ``words``; ``length`` are words with punctuation.
    """

    sentences: int = 0
    failures: int = 0
    matched: Counter[str] = field(default_factory=Counter)
    gold: Counter[str] = field(default_factory=Counter)
    output: Counter[str] = field(default_factory=Counter)
    exact: int = 0
    crossing: int = 0
    uncrossed: int = 0
    tagged: int = 0
    words: int = 0
    length: int = 0

    def __add__(self, other: "BracketCounts") -> "BracketCounts":
        return BracketCounts(
            self.sentences + other.sentences,
            self.failures + other.failures,
            self.matched + other.matched,
            self.gold + other.gold,
            self.output + other.output,
            self.exact + other.exact,
            self.crossing + other.crossing,
            self.uncrossed + other.uncrossed,
            self.tagged + other.tagged,
            self.words + other.words,
            self.length + other.length,
        )

    def of(self, label: str) -> "BracketCounts":
        """The brackets of one label alone."""
        matched, gold, output = (Counter({label: each[label]}) for each in (self.matched, self.gold, self.output))
        return BracketCounts(self.sentences, self.failures, matched, gold, output)

    @property
    def precision(self) -> float:
        """The share of the outputs' brackets that are right, in 0 to 100."""
        return _percent(self.matched.total(), self.output.total())

    @property
    def recall(self) -> float:
        """The share of the gold trees' brackets that are found, in 0 to 100."""
        return _percent(self.matched.total(), self.gold.total())

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, in 0 to 100."""
        return _percent(2 * self.matched.total(), self.gold.total() + self.output.total())

    @property
    def exact_match(self) -> float:
        """The share of sentences with all brackets right, in 0 to 100."""
        return _percent(self.exact, self.sentences)

    @property
    def tagging_accuracy(self) -> float:
        """The share of words with the right tag, in 0 to 100."""
        return _percent(self.tagged, self.words)

    @property
    def average_crossing(self) -> float:
        """Crossing brackets a sentence."""
        return self.crossing / self.sentences if self.sentences else 0.0

    @property
    def no_crossing(self) -> float:
        """The share of sentences without a crossing bracket, in 0 to 100."""
        return _percent(self.uncrossed, self.sentences)


def count_brackets(gold: Tree, output: Tree | None) -> BracketCounts:
    """Compare an output, None where there is none, with the gold tree of the sentence.

    Raises:
        BadInputError: They are over different words.
    """
    leaves = list(gold.leaves())
    counted = [leaf.label not in _PUNCTUATION for leaf in leaves]
    expected = list(_brackets(gold, counted))
    if output is None:
        missing = BracketCounts(sentences=1, failures=1, gold=_labels(expected), uncrossed=1)
        return replace(missing, words=sum(counted), length=len(leaves))
    written = list(output.leaves())
    if [leaf.word for leaf in written] != [leaf.word for leaf in leaves]:
        raise BadInputError(f"the words differ: {_difference(gold.words, output.words)}")
    found = list(_brackets(output, counted))
    matched = Counter(expected) & Counter(found)
    crossing = sum(_crosses(each, expected) for each in found)
    labels = Counter(label for label, _, _ in matched.elements())
    return BracketCounts(
        sentences=1,
        matched=labels,
        gold=_labels(expected),
        output=_labels(found),
        exact=int(matched.total() == len(expected) == len(found)),
        crossing=crossing,
        uncrossed=int(crossing == 0),
        tagged=sum(
            one.label == other.label for one, other, counts in zip(leaves, written, counted, strict=True) if counts
        ),
        words=sum(counted),
        length=len(leaves),
    )


def count_all(pairs: Iterable[tuple[Tree, Tree | None]]) -> BracketCounts:
    """The counts of gold trees and outputs together."""
    return sum((count_brackets(gold, output) for gold, output in pairs), BracketCounts())


def _brackets(tree: Tree, counted: Sequence[bool]) -> Iterator[Bracket]:
    """The brackets that count, of phrases with more in them than punctuation."""
    word = place = 0  # of the words, and of those that count
    begun: list[tuple[str, int]] = []
    waiting: list[Tree | None] = [tree]
    while waiting:
        node = waiting.pop()
        if node is None:
            label, first = begun.pop()
            if place > first and label not in _ROOTS:
                yield _EQUAL.get(label, label), first, place
        elif node.word is not None:
            place += counted[word]
            word += 1
        else:
            begun.append((node.label, place))
            waiting += [None, *reversed(node.parts)]


def _crosses(bracket: Bracket, others: Iterable[Bracket]) -> bool:
    _, first, last = bracket
    return any(one < first < other < last or first < one < last < other for _, one, other in others)


def _labels(brackets: Iterable[Bracket]) -> Counter[str]:
    return Counter(label for label, _, _ in brackets)


def _difference(gold: Sequence[str], output: Sequence[str]) -> str:
    for number, (one, other) in enumerate(zip(gold, output, strict=False), start=1):
        if one != other:
            return f"word {number:,} is {one!r} in the gold tree and {other!r} in the output"
    return f"{len(gold):,} in the gold tree, {len(output):,} in the output"


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0
