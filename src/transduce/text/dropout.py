"""BPE-dropout (Provilkov et al. 2020): words are segmented anew each time, with merges left out at random."""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, pairwise, repeat
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.config.splitmix import STEP, mix, signed
from transduce.text.symbols import BYTES
from transduce.text.tokenizer import Tokenizer

# The ids that a piece of text begins with, one for each character or byte.
Spelling = tuple[int, ...]

# Longer pieces are no words and stay as they are: the time to merge them grows with the square of their length.
_LONGEST: Final = 200


@final
class Merges:
    """Spells words in characters and bytes, and merges them again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Read the merges.

        Raises:
            BadInputError: The tokenizer is none that ``learn_bpe`` made.
        """
        stored = json.loads(tokenizer.to_json())
        model = stored["model"]
        if model["type"] != "BPE" or stored["normalizer"] != {"type": "Prepend", "prepend": " "}:
            raise BadInputError("BPE-dropout is for tokenizers of kind bpe: set bpe_dropout to 0, or learn such a one")
        self._tokenizer = tokenizer
        self._ids = tokenizer.vocabulary
        merges = [(left, right) for left, right in model["merges"]]
        # Of two possible merges, the one of lower rank is the better.
        self._ranks = {(self._ids[left], self._ids[right]): rank for rank, (left, right) in enumerate(merges)}
        self._merged = [self._ids[left + right] for left, right in merges]

    def word_begins(self) -> NDArray[np.bool_]:
        """For each id, whether a word begins with it, whatever stands before."""
        special = set(astuple(self._tokenizer.special))
        return np.array(
            [index in special or (token[0] == " " and not token[:2].isspace()) for token, index in self._ids.items()]
        )

    def spell(self, ids: tuple[int, ...]) -> tuple[Spelling, ...]:
        """The pieces of a word, each in characters and bytes; a symbol is one.

        The ids themselves, where a piece is too long, or where merging would not give them: they are no encoded text.
        """
        [text] = self._tokenizer.decode([ids])
        pieces, as_it_is = self._tokenizer.pieces(text), tuple((index,) for index in ids)
        if any(len(piece) > _LONGEST for piece in pieces):
            return as_it_is
        spelled = tuple(map(self._spell_piece, pieces))
        merged = tuple(index for spelling in spelled for index in self.merge(spelling))
        return spelled if merged == ids else as_it_is

    def _spell_piece(self, piece: str) -> Spelling:
        spelling = tuple(index for character in piece for index in self._spell_character(character))
        whole = self._ids.get(piece)
        if whole is None or self.merge(spelling) == [whole]:
            return spelling
        return (whole,)  # a symbol: no merges make it

    def _spell_character(self, character: str) -> list[int]:
        index = self._ids.get(character)
        return [index] if index is not None else [self._ids[BYTES[byte]] for byte in character.encode()]

    def merge(self, spelling: Spelling, admit: Callable[[], bool] = lambda: True) -> list[int]:
        """Merge until nothing is left to merge, or nothing that is admitted (Provilkov et al. 2020, algorithm 1).

        Each time, ``admit`` is asked for one possible merge after the other, the best first, until it says yes. (The
        paper asks for all of them first; as they are asked one by one, the outcome is as likely.)
        """
        ids, rank_of = list(spelling), self._ranks.get
        while len(ids) > 1:
            ranks = map(rank_of, pairwise(ids))
            possible = sorted((rank, place) for place, rank in enumerate(ranks) if rank is not None)
            for rank, place in possible:
                if admit():
                    ids[place : place + 2] = [self._merged[rank]]
                    break
            else:
                break
        return ids


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
        """Where words begin in the joined lines, which line each is in, and how far from that line's beginning."""
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
