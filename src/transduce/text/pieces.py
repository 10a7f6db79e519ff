"""Which part of a translation stands for which part of its source, word by word and, where one is cut, within words."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final, final

from transduce.config import BadInputError

_WORDS: Final = re.compile(r"\S+")
_JOINER: Final = "\u200d"


@final
@dataclass(frozen=True)
class AlignedText:
    """A translation; ``alignment`` has pairs (source word, word of the text), as ``Translation.alignment`` does.

    Words are counted from 0 and stand between white space. None means that nothing is known of them.
    """

    text: str
    alignment: Sequence[tuple[int, int]] | None = None


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a translation, with the white space before it; ``source`` is the number of the source's piece, if any."""

    space: str
    text: str
    source: int | None


def cut_words(text: str, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The words of a text, cut at these places (in rising order): where each piece starts and ends."""
    pieces: list[tuple[int, int]] = []
    for start, end in (word.span() for word in _WORDS.finditer(text)):
        inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        pieces += pairwise([start, *inner, end])
    return pieces


def match_pieces(source: str, pieces: Sequence[tuple[int, int]], target: AlignedText) -> list[Piece]:
    """The pieces of a translation, each with the one of the source's (``cut_words``) that it stands for.

    A word of the translation stands for one of the source's: of several, for the one that the fewest others stand for.
    Without an alignment, words of the same place in the sentence belong together, and so do the characters of Chinese
    and Japanese. The cuts of a word come where they stood in the source: before the punctuation behind the word, or in
    proportion. Punctuation that the source's word does not have belongs to nothing.

    Raises:
        BadInputError: The alignment names a word that there is not.
    """
    words = [(found.group(), found.start(), found.end()) for found in _WORDS.finditer(target.text)]
    groups = _group_pieces(pieces)
    alignment = target.alignment
    # Where a translation has no spaces, an alignment knows nothing of its words.
    if 2 * len(words) <= len(groups) and 2 * sum(map(_is_wide, target.text)) > len(target.text):
        words, alignment = [part for word in words for part in _split_wide(*word)], None
    partners = _find_partners(alignment, len(groups), len(words))
    slices: list[list[tuple[int, int, int | None]]] = [[(0, len(word), None)] for word, _, _ in words]
    for (first, group), several in zip(groups, partners, strict=True):
        if len(group) == len(several) == 1 and _is_plain(words[several[0]][0]):
            slices[several[0]] = [(0, len(words[several[0]][0]), first)]
        elif several:
            start, end = group[0][0], group[-1][1]
            written = [words[index][0] for index in several]
            cuts = _move_cuts(source[start:end], [place - start for place, _ in group[1:]], written)
            for index, parts in zip(several, _slice(written, cuts, first), strict=True):
                slices[index] = parts
    found = []
    end = 0
    for (word, start, after), parts in zip(words, slices, strict=True):
        space = target.text[end:start] if end else ""
        for begin, stop, owner in parts:
            found.append(Piece(space, word[begin:stop], owner))
            space = ""
        end = after
    return found


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _split_wide(word: str, start: int, _end: int) -> list[tuple[str, int, int]]:
    """The characters of a text in Chinese or Japanese, words in narrow letters whole."""
    parts = ("".join(group) for wide, several in groupby(word, _is_wide) for group in (several if wide else [several]))
    found = []
    for part in parts:
        found.append((part, start, start + len(part)))
        start += len(part)
    return found


def _group_pieces(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
    """The pieces of each word, behind the number of the first of them."""
    groups: list[tuple[int, list[tuple[int, int]]]] = []
    for number, (start, end) in enumerate(pieces):
        if groups and groups[-1][1][-1][1] == start:
            groups[-1][1].append((start, end))
        else:
            groups.append((number, [(start, end)]))
    return groups


def _find_partners(alignment: Sequence[tuple[int, int]] | None, sources: int, targets: int) -> list[list[int]]:
    """For each word of the source the words that stand for it; no word stands for two."""
    partners: list[list[int]] = [[] for _ in range(sources)]
    if not alignment:
        for target in range(targets):
            partners[(2 * target + 1) * sources // (2 * targets)].append(target)
        return partners
    counts = [0] * sources
    candidates: dict[int, list[int]] = {}
    for source, target in sorted(set(alignment)):
        if not (0 <= source < sources and 0 <= target < targets):
            raise BadInputError(
                f"alignment {source}-{target}: the source has {sources:,} words, and the translation {targets:,}; they "
                f"are counted from 0"
            )
        counts[source] += 1
        candidates.setdefault(target, []).append(source)
    for target in sorted(candidates):
        partners[min(candidates[target], key=lambda source: counts[source])].append(target)
    return partners


def _move_cuts(source: str, cuts: Sequence[int], words: Sequence[str]) -> list[int]:
    """Places in the words, joined, for the beginning of a source's word, its cuts, and its end."""
    if list(words) == [source]:
        return [0, *cuts, len(source)]
    target = "".join(words)
    between = list(accumulate(map(len, words[:-1])))
    (first, last), (begin, stop) = find_core(source), find_core(target)
    moved = []
    for place in (0, *cuts, len(source)):
        if place <= first:
            found = begin * place // first if first else begin
        elif place >= last:
            found = stop + ((len(target) - stop) * (place - last) // (len(source) - last) if last < len(source) else 0)
        else:
            found = begin + round((stop - begin) * (place - first) / (last - first))
            found = max(min(begin + 1, stop), min(found, stop - 1))
            found = min(between, key=lambda end: abs(end - found), default=found)
        moved.append(_keep_together(target, found))
    return list(accumulate(moved, max))


def _is_plain(word: str) -> bool:
    """Whether a word has no punctuation around it."""
    return word[0].isalnum() and word[-1].isalnum()


def find_core(word: str) -> tuple[int, int]:
    """Where a word starts and ends without the punctuation around it; of punctuation alone, all of it."""
    inner = [index for index, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    return (inner[0], inner[-1] + 1) if inner else (0, len(word))


def _keep_together(text: str, place: int) -> int:
    """The next place that is not within a character and the marks above, below and behind it."""
    while 0 < place < len(text) and (
        unicodedata.category(text[place])[0] == "M" or _JOINER in (text[place], text[place - 1])
    ):
        place += 1
    return place


def _slice(words: Sequence[str], cuts: Sequence[int], first: int) -> list[list[tuple[int, int, int | None]]]:
    """For each of the words that the cuts go through as if they were one: where its parts start and end, and whose."""
    length = sum(map(len, words))
    owned = [(0, cuts[0], None), *((*each, first + index) for index, each in enumerate(pairwise(cuts)))]
    owned.append((cuts[-1], length, None))
    slices = []
    start = 0
    for word in words:
        end = start + len(word)
        slices.append(
            [
                (max(a, start) - start, min(b, end) - start, owner)
                for a, b, owner in owned
                if max(a, start) < min(b, end)
            ]
        )
        start = end
    return slices
