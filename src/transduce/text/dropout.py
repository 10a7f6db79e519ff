"""BPE-dropout (Provilkov et al. 2020): words are segmented anew each time, with merges left out at random."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.config.splitmix import STEP, mix, signed
from transduce.text.merges import Merges, Spelling
from transduce.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]

# A word has at most so many segmentations, each drawn when it is first asked for.
_DRAWS: Final = 64
# Segmentations kept; when there are more, all are forgotten.
_KEPT: Final = 2**19


@final
@dataclass(frozen=True, slots=True)
class _Word:
    ids: tuple[int, ...]
    pieces: tuple[Spelling, ...]
    merges: int  # how many make the pieces the ids
    seed: int  # and so many after it, one for each segmentation


@final
class BpeDropout:
    """Segments encoded lines anew; they decode to the same text.

    The outcome depends on the tokenizer, ``seed``, and a line's ids, epoch and row, and on nothing drawn before. Sides
    that share a tokenizer want a dropout each, of different seeds. Not for several threads at once.
    """

    def __init__(self, tokenizer: Tokenizer, probability: float, seed: int) -> None:
        """Leave out each possible merge with ``probability``, each time the next one is chosen.

        Raises:
            BadInputError: The tokenizer is none that ``learn_bpe`` made, or the probability is not in 0 to 1.
        """
        if not 0 <= probability <= 1:
            raise BadInputError(f"bpe_dropout = {probability} is no probability: give 0 to 1")
        self._merges = Merges(tokenizer)
        self._begins = self._merges.word_begins()
        self._probability = probability
        self._seed = seed
        self._forget()

    def segment(
        self, sequences: Sequence[Ids | list[int]], epoch: int, rows: Sequence[int] | NDArray[np.int64]
    ) -> list[Ids]:
        """Each line's ids with dropout.

        Args:
            sequences: Ids of lines as ``Tokenizer.encode`` gives them.
            epoch: Which time the lines are seen: each draws anew.
            rows: The line's own numbers, whatever batch they are in.
        """
        lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
        if not self._probability or not lengths.any():
            return [np.array(ids, dtype=np.int32) for ids in sequences]
        if len(self._drawn) > _KEPT:
            self._forget()
        ids = np.concatenate([np.asarray(line, dtype=np.int32) for line in sequences])
        starts, lines, positions = self._cut(ids, lengths)
        numbers = self._number(ids, starts)
        choices = _hash(self._seed, epoch, np.asarray(rows)[lines], positions) % _DRAWS
        codes = (numbers * _DRAWS + choices).tolist()
        return _join([self._drawn.get(code) or self._draw(code) for code in codes], lines, len(lengths))

    def _forget(self) -> None:
        # A word's number is its place in ``_words``; segmentation k of word w is ``_drawn[w * _DRAWS + k]``.
        self._numbers: dict[tuple[int, ...], int] = {}
        self._words: list[_Word] = []
        self._drawn: dict[int, tuple[int, ...]] = {}

    def _cut(
        self, ids: Ids, lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where words begin in the lines end to end, which line each is in, and how far from that line's beginning."""
        begins = self._begins[ids]
        offsets = np.cumsum(lengths) - lengths
        begins[offsets[lengths > 0]] = True
        starts = np.flatnonzero(begins)
        lines = np.repeat(np.arange(len(lengths)), lengths)[starts]
        return starts, lines, starts - offsets[lines]

    def _number(self, ids: Ids, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        flat, bounds = ids.tolist(), [*starts.tolist(), len(ids)]
        words = [tuple(flat[start:stop]) for start, stop in pairwise(bounds)]
        known = self._numbers
        for word in words:
            if word not in known:
                known[word] = len(self._words)
                self._words.append(self._spell(word))
        return np.array([known[word] for word in words])

    def _spell(self, ids: tuple[int, ...]) -> "_Word":
        pieces = self._merges.spell(ids)
        digest = hashlib.blake2b(f"{self._seed} {pieces}".encode(), digest_size=8).digest()
        merges = sum(map(len, pieces)) - len(ids)  # each takes one id away
        return _Word(ids, pieces, merges, int.from_bytes(digest) * _DRAWS)

    def _draw(self, code: int) -> tuple[int, ...]:
        number, choice = divmod(code, _DRAWS)
        word, probability = self._words[number], self._probability
        chance = random.Random(word.seed + choice).random
        first = [chance() >= probability for _ in range(word.merges)]
        if all(first):  # nothing is left out, as most often
            ids = word.ids
        else:
            admit = chain(first, (chance() >= probability for _ in repeat(None))).__next__
            ids = tuple(chain.from_iterable(self._merges.merge(piece, admit) for piece in word.pieces))
        self._drawn[code] = ids
        return ids


def _join(words: list[tuple[int, ...]], lines: NDArray[np.int64], count: int) -> list[Ids]:
    """Words of several lines as so many arrays."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    ends = np.cumsum(np.bincount(lines, lengths, count).astype(np.int64))
    ids = np.fromiter(chain.from_iterable(words), np.int32, int(lengths.sum()))
    return np.split(ids, ends[:-1])


def _hash(*parts: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of 63 bits that look drawn at random, one for each entry."""
    mixed = np.zeros(1, np.int64)
    for part in parts:
        mixed = mixed + (signed(part) if isinstance(part, int) else part) + STEP
        mix(mixed)
    return (mixed.view(np.uint64) >> np.uint64(1)).astype(np.int64)
