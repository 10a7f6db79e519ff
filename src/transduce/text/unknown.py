"""Words for unknown symbols: which word a symbol of a source stands in, and an output with words in their place.

A word stands between white space; of a script that is written without spaces, what a symbol itself covers.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from transduce.text.pieces import find_core
from transduce.text.tokenizer import Tokenizer

# Thai to Lao, Myanmar, Khmer; kana, Chinese characters and their punctuation.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff"
)
_PART: Final = rf"[^\s{_UNSPACED}]"
_FIRST_WORD: Final = re.compile(rf"{_PART}+|[{_UNSPACED}]+")
_OF_WORD: Final = re.compile(_PART)
_REST: Final = re.compile(rf"{_PART}*")
# Code points that Unicode keeps for a program's own use; U+FDD0 is the guard of ``words``.
_MARKS: Final = tuple(map(chr, range(0xFDD1, 0xFDF0)))


def word_at(text: str, span: tuple[int, int]) -> str:
    """The word that a token (``Tokenizer.spans``) is in, the first of several; empty for white space alone."""
    found = _FIRST_WORD.search(text, *span)
    if found is None:
        return ""
    start, end = found.span()
    if not _REST.fullmatch(found.group()):
        return found.group()
    while start and _OF_WORD.match(text, start - 1):
        start -= 1
    behind = _REST.match(text, end)
    assert behind is not None  # it matches the empty text too
    return text[start : behind.end()]


def look_up(word: str, dictionary: Mapping[str, str]) -> str:
    """A word's entry, or that of the word without the punctuation around it, which stays; else the word itself."""
    if word in dictionary:
        return dictionary[word]
    first, last = find_core(word)
    core = word[first:last]
    return word[:first] + dictionary.get(core, core) + word[last:]


def fill_unknown(tokenizer: Tokenizer, sequences: Sequence[Sequence[int]], words: Sequence[str]) -> list[str]:
    """The text of each sequence of ids; the word that its n-th unknown symbol is in becomes the n-th of ``words``.

    Of several unknown symbols in one word, the first says what becomes of it.
    """
    plain = "".join(tokenizer.decode(sequences))
    mark = next(each for each in _MARKS if each not in plain)
    pattern = re.compile(rf"{_PART}*{mark}{_PART}*")
    filled = []
    for text in tokenizer.decode_marked(sequences, mark):
        remaining = list(words)

        def replace(found: re.Match[str], remaining: list[str] = remaining) -> str:
            word = remaining[0]
            del remaining[: found.group().count(mark)]
            return word

        filled.append(pattern.sub(replace, text))
    return filled
