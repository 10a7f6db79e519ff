"""BPE-dropout (Provilkov et al. 2020): words are segmented anew each time, with merges left out at random."""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]
_Words = NDArray[np.uint64]

# A word has at most so many segmentations, each drawn when it is first asked for.
_DRAWS: Final = 64
# Segmentations kept; more of them than this, and all are drawn anew. They take about 100 MiB.
_KEPT: Final = 2**18
# Longer pieces are no words and stay as they are: the time to segment them grows with the square of their length.
_LONGEST: Final = 200


@final
class BpeDropout:
    """Segments encoded lines anew; they decode to the same text.

    The outcome depends on the tokenizer, ``seed``, and a line's ids, epoch and row, and on nothing drawn before. Sides
    that share a tokenizer want a dropout each, of different seeds. Not for several threads at once.
    """

    def __init__(self, tokenizer: Tokenizer, probability: float, seed: int) -> None:
        """Leave out each possible merge with ``probability`` whenever the next one is chosen.

        Raises:
            BadInputError: The tokenizer is none that ``learn_bpe`` made, or the probability is not in 0 to 1.
        """
        if not 0 <= probability <= 1:
            raise BadInputError(f"bpe_dropout = {probability} is no probability: give 0 to 1")
        self._speller = _Speller(tokenizer)
        self._probability = probability
        self._seed = seed
        self._begins = self._speller.word_begins()
        self._numbers: dict[tuple[int, ...], int] = {}
        self._words: list[_Word] = []
        self._drawn: dict[int, tuple[int, ...]] = {}

    def segment(
        self, sequences: Sequence[Ids | Sequence[int]], epoch: int, rows: Sequence[int] | NDArray[np.int64]
    ) -> list[Ids]:
        """The lines' ids with dropout.

        Args:
            sequences: A line each, as ``Tokenizer.encode`` gives it.
            epoch: The draw changes with it,
            rows: and with each line's own number.
        """
        if not self._probability or not any(map(len, sequences)):
            return [np.array(ids, dtype=np.int32) for ids in sequences]
        if len(self._drawn) > _KEPT:
            self._numbers, self._words, self._drawn = {}, [], {}
        ids = np.concatenate([np.asarray(line, dtype=np.int32) for line in sequences])
        lines, starts = self._cut(ids, np.array([len(line) for line in sequences]))
        numbers = self._number(ids, starts)
        choices = _hash(self._seed, epoch, np.asarray(rows, np.uint64)[lines], starts.astype(np.uint64)) % _DRAWS
        codes = numbers * _DRAWS + choices.astype(np.int64)
        drawn = [self._drawn.get(code) or self._draw(code) for code in codes.tolist()]
        return _join(drawn, lines, len(sequences))
