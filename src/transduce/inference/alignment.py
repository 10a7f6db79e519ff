"""Which word of the source each word of an output comes from, as its attention tells."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, final

from jaxtyping import Float
from torch import Tensor

from transduce.config import BadInputError
from transduce.text import Tokenizer, fill_unknown

Alignment = tuple[tuple[int, int], ...]
_WORD: Final = re.compile(r"\S+")
_LINK: Final = re.compile(r"(\d+)([-p])(\d+)")


@final
@dataclass(frozen=True)
class ReferenceAlignment:
    """What links are held against: those that must be there, and those that may be, the former among them."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, alignment: Alignment) -> "ReferenceAlignment":
        """One whose links are all sure."""
        return cls(frozenset(alignment), frozenset(alignment))


def align(
    weights: Float[Tensor, "target source"], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Pairs (source word, output word), counted from 0: every token of the output points at one of the source.

    ``weights`` has the end symbol last on both sides; the end of the source is nothing that a token comes from. Several
    tokens of a word may point at as many words, and words that nothing points at stand in no pair. There is none where
    the tokenizer reads nothing of the source.
    """
    if not source_words:
        return ()
    best = weights[: len(target_words), : len(source_words)].argmax(dim=1).tolist()
    return tuple(sorted({(source_words[token], word) for token, word in zip(best, target_words, strict=True)}))


def words_of_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The word of a text that each of its tokens is in, or stands behind; white space separates words."""
    starts = [word.start() for word in _WORD.finditer(text)]
    return [max(bisect_left(starts, end) - 1, 0) for _, end in tokenizer.spans(text)]


def words_of_output(tokenizer: Tokenizer, ids: Sequence[int], unknown: Sequence[str] = ()) -> list[int]:
    """The word of an output that each token is in, or stands behind; ``unknown`` are those of its unknown symbols."""
    beginnings = [ids[: end + 1] for end in range(len(ids))]
    texts = fill_unknown(tokenizer, beginnings, unknown) if unknown else tokenizer.decode(beginnings)
    numbers = [max(len(text.split()) - 1, 0) for text in texts]
    # Spelled in bytes, white space looks like a word until its last one.
    return [*accumulate(reversed(numbers), min)][::-1]


def pharaoh(alignment: Alignment) -> str:
    """The usual form: ``0-0 1-2``, source before output."""
    return " ".join(f"{source}-{target}" for source, target in alignment)


def read_pharaoh(line: str, source: str, target: str) -> ReferenceAlignment:
    """A line in Pharaoh form, of these texts: ``0-0 1-2``, words counted from 0; ``1p2`` is possible, but not sure.

    Raises:
        BadInputError: Something in it is no link, or of words that a text does not have.
    """
    sure, possible = set(), set()
    sizes = {"source": len(source.split()), "target": len(target.split())}
    for written in line.split():
        match = _LINK.fullmatch(written)
        if match is None:
            raise BadInputError(f"{written!r} is no link: write source-target, words counted from 0, such as 0-0 1-2")
        link = int(match[1]), int(match[3])
        for (side, size), word in zip(sizes.items(), link, strict=True):
            if word >= size:
                raise BadInputError(
                    f"{written!r}: the {side} has {size:,} words, counted from 0 (white space separates words): does "
                    f"the alignment belong to this text?"
                )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return ReferenceAlignment(frozenset(sure), frozenset(possible))
