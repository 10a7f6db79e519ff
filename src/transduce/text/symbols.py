"""Symbols that no trainer chooses: bytes, frequent characters, and the user's own such as ``<de>``, one token each."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from transduce.config import BadInputError
from transduce.config.section import check_word
from transduce.text.tokenizer import SPECIAL_SYMBOLS

BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
CONTINUED: Final = "##"  # begins a WordPiece that goes on with a word

# Text without spaces is one long word, so a sentence must pass. What is longer is no word: nothing is learned from it,
# as that takes a time that grows with the square of its length.
LONGEST_WORD: Final = 1000  # characters

_RESERVED: Final = frozenset([*SPECIAL_SYMBOLS, *BYTES])


def check_symbols(symbols: Iterable[str]) -> tuple[str, ...]:
    """The symbols, each once.

    Raises:
        BadInputError: One is not a word, or means something else already.
    """
    unique = tuple(dict.fromkeys(symbols))
    for symbol in unique:
        try:
            check_word(symbol)
        except ValueError as error:
            raise BadInputError(f"no symbol: {error}") from error
        if symbol in _RESERVED or symbol.startswith(CONTINUED):
            raise BadInputError(
                f"{symbol!r} cannot be a symbol: tokenizers mean something else by it; write it otherwise"
            )
    return unique


def check_room(vocab_size: int, fixed: int, symbols: tuple[str, ...]) -> int:
    """How many rows of the vocabulary are left to learn.

    Args:
        vocab_size: All rows.
        fixed: Rows of special symbols, bytes and the user's symbols.
        symbols: The user's, for the message.

    Raises:
        BadInputError: Nothing is left.
    """
    if vocab_size <= fixed:
        because = f", {len(symbols)} symbols among them" if symbols else ""
        raise BadInputError(
            f"vocab_size = {vocab_size} is too small: {fixed} are taken before anything is learned{because}; "
            f"give {fixed + 1} or more"
        )
    return vocab_size - fixed


def standing(symbols: tuple[str, ...]) -> str:
    """A regular expression for any of the symbols where it is a word of its own."""
    return rf"(?<!\S)(?:{'|'.join(map(re.escape, symbols))})(?!\S)"


def count_characters(lines: Iterable[str]) -> tuple[Counter[str], int]:
    """How often each character stands in the text, and the length of its longest line."""
    counts: Counter[str] = Counter()
    longest = 0
    for line in lines:
        counts.update(line)
        longest = max(longest, len(line))
    return counts, longest


def most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """At most so many characters, the most frequent first; of equally frequent ones those that Unicode has first.

    The trainers could choose too, but of equally frequent ones they keep others each time.
    """
    return sorted(+counts, key=lambda character: (-counts[character], character))[:limit]
