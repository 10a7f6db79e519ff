"""Sentence GLEU: BLEU's n-grams as the reward of a single output (Wu et al. 2016, section 5)."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, final

_LONGEST: Final = 4  # n-grams of 1 to so many tokens


@final
class Gleu:
    """Scores outputs for one sentence against its ``reference``; a token is a word, or its id: whatever can be equal.

    Matching n-grams are those that both have, each as often as both have it. Their number over that of the output's
    n-grams is the precision, over that of the reference's the recall; the score is the smaller one, from 0 to 1.
    """

    def __init__(self, reference: Sequence[Hashable]) -> None:
        self._reference = _count(reference)
        self._total = self._reference.total()

    def __call__(self, output: Sequence[Hashable]) -> float:
        """The score of an output; an empty one for an empty reference has 1."""
        counts = _count(output)
        most = max(self._total, counts.total())
        return (self._reference & counts).total() / most if most else 1.0


def _count(tokens: Sequence[Hashable]) -> Counter[tuple[Hashable, ...]]:
    lengths = range(1, _LONGEST + 1)
    return Counter(tuple(tokens[i : i + n]) for n in lengths for i in range(len(tokens) - n + 1))
