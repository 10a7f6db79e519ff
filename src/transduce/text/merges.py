"""The merges of a learned BPE, applied one by one: what ``tokenizers`` does inside, open to chance."""

import json
from collections.abc import Callable
from dataclasses import astuple
from itertools import pairwise
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
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
