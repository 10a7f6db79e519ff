"""Where the elements and placeholders of a block stand among the pieces of its translation.

An element goes around the words that stand for its own: the stretch of them in which there are the fewest others, in
relation. So it comes out once, whole and nested as before, whatever the alignment is; a link is never doubled, and a
word that stands far away does not draw the rest of the sentence into it. An element for whose words nothing stands goes
around a word beside the place where they stood. A placeholder is no part of what a model reads: it would have to be
copied, and models lose such things. It stands between the words that stand for its neighbours.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final, final

from transduce.text.blocks import Block, Placeholder
from transduce.text.matching import MatchedText

BLOCK: Final = -1  # what is no element's is the block's own
_NEAR: Final = 4  # pieces on either side that have a say in where a placeholder stands

Range = tuple[int, int]


@final
class Places:
    """Where among a translation's pieces each element of its block starts and ends, and each placeholder stands."""

    def __init__(self, block: Block, text: MatchedText) -> None:
        self._text = text
        self._sources: list[Range] = []
        self._inside: list[list[Range]] = [[] for _ in range(len(block.elements) + 1)]  # the block's own are last
        found = {BLOCK: (0, len(text.pieces))}
        lost: list[int] = []
        for number, element in enumerate(block.elements):
            first, last = (bisect_left(text.starts, place) for place in (element.start, element.end))
            self._sources.append((first, last))
            around = found.get(element.parent)
            if around and (stretch := self._find_stretch(first, last, element.parent, around)):
                found[number] = stretch
                insort(self._inside[element.parent], stretch)
            else:
                lost.append(number)
        for number in lost:
            parent = block.elements[number].parent
            first, last = self._sources[number]
            gap = self._find_gap(first, last, found[parent], parent)
            found[number] = self._take_word(gap, found[parent], parent)
            insort(self._inside[parent], found[number])
        self.elements = found
        self.placeholders = [self._place(each, found[each.parent]) for each in block.placeholders]

    def _find_stretch(self, first: int, last: int, parent: int, around: Range) -> Range | None:
        """The pieces that stand for an element's own, ``first`` to ``last`` of the source's, and those between them.

        Of all stretches it is the one whose own pieces outnumber its others most or, of several, have more letters;
        nothing that stands for another element is in it. At the edge of a sentence, pieces that stand for nothing go
        with it.
        """
        best, best_score = None, (0, 0)
        start = end = score = letters = 0
        for begin, stop in self._find_own(first, last, around):
            others = self._count_others(end, begin, parent) if score else None
            if others is None or score < others:
                start, score, letters = begin, 0, 0
            else:
                score -= others
            score += stop - begin
            letters += sum(len(piece.text) for piece in self._text.pieces[begin:stop])
            end = stop
            if (score, letters) > best_score:
                best, best_score = (start, stop), (score, letters)
        return best and self._widen(best, first, last, around)

    def _find_own(self, first: int, last: int, around: Range) -> Iterator[Range]:
        """The pieces that stand for those of the source from ``first`` to ``last``; of whole sentences all in one."""
        text = self._text
        begin, end = bisect_left(text.sources_before, first), bisect_right(text.sources_before, last) - 1
        ranges = (
            [(first, last)] if begin >= end else [(first, text.sources_before[begin]), (text.sources_before[end], last)]
        )
        for number, (start, stop) in enumerate(ranges):
            if number:
                whole = max(text.pieces_before[begin], around[0]), min(text.pieces_before[end], around[1])
                if whole[0] < whole[1]:
                    yield whole
            for piece in sorted(each for several in text.standing[start:stop] for each in several):
                if around[0] <= piece < around[1]:
                    yield piece, piece + 1

    def _count_others(self, start: int, end: int, parent: int) -> int | None:
        """How many pieces stand for words around an element; None where one stands for another element's."""
        others = 0
        for piece in self._text.pieces[start:end]:
            if piece.source is None:
                continue
            element = self._text.elements[piece.source]
            if element != parent and self._is_within(piece.source, parent):
                return None
            others += 1
        return others

    def _is_within(self, source: int, element: int) -> bool:
        return element == BLOCK or self._sources[element][0] <= source < self._sources[element][1]

    def _widen(self, stretch: Range, first: int, last: int, around: Range) -> Range:
        """The stretch with all pieces up to the edge of a sentence whose first or last word is the element's own."""
        text, (start, end) = self._text, stretch
        sentence = bisect_right(text.sources_before, first) - 1
        if text.sources_before[sentence] == first:
            least = max(around[0], text.pieces_before[sentence])
            if all(piece.source is None for piece in text.pieces[least:start]):
                start = min(start, least)
        sentence = bisect_left(text.sources_before, last)
        if text.sources_before[sentence] == last:
            most = min(around[1], text.pieces_before[sentence])
            if all(piece.source is None for piece in text.pieces[end:most]):
                end = max(end, most)
        return start, end

    def _find_gap(self, first: int, last: int, around: Range, parent: int, side: int = 0) -> int:
        """The place between pieces for what stood between the source's pieces ``first`` - 1 and ``last``.

        It is beside what stands for its neighbours in the sentence; where these are apart, where fewer words near by
        change sides, or with ``side``, by the left one (-1) or the right one (1) alone.
        """
        text = self._text
        sentence = bisect_right(text.sources_before, first) - 1
        if first == last and text.sources_before[sentence] == first:
            found = text.pieces_before[sentence]  # it stood between sentences
        else:
            least, most = text.sources_before[sentence : sentence + 2]
            left = next((n for n in range(first - 1, least - 1, -1) if text.standing[n]), None)
            right = next((n for n in range(last, most) if text.standing[n]), None)
            after = None if left is None else text.standing[left][-1] + 1
            before = None if right is None else text.standing[right][0]
            if after is None or before is None:
                found = next((each for each in (after, before) if each is not None), text.pieces_before[sentence])
            elif side:
                found = after if side < 0 else before
            else:
                near = max(least, first - _NEAR), first, last, min(most, last + _NEAR)
                found = min((after, before), key=lambda gap: self._count_crossing(gap, *near))
        found = min(max(found, around[0]), around[1])
        inside = self._inside[parent]
        index = bisect_left(inside, (found, -1)) - 1
        if index >= 0 and found < inside[index][1]:  # within another element: beside it
            start, end = inside[index]
            found = start if found - start < end - found else end
        return found

    def _count_crossing(self, gap: int, begin: int, first: int, last: int, end: int) -> int:
        """How many pieces for sources from ``begin`` to ``first`` are behind it, or for those of ``last`` on before."""
        standing = self._text.standing
        return sum(piece >= gap for several in standing[begin:first] for piece in several) + sum(
            piece < gap for several in standing[last:end] for piece in several
        )

    def _take_word(self, gap: int, around: Range, parent: int) -> Range:
        """The word beside a gap that is no other element's, or nothing."""
        for piece in (gap - 1, gap):
            inside = self._inside[parent]
            index = bisect_left(inside, (piece + 1, -1)) - 1
            free = index < 0 or inside[index][1] <= piece
            if around[0] <= piece < around[1] and free and any(map(str.isalnum, self._text.pieces[piece].text)):
                return piece, piece + 1
        return gap, gap

    def _place(self, placeholder: Placeholder, around: Range) -> int:
        next_ = bisect_left(self._text.starts, placeholder.offset)
        side = bool(placeholder.before) - bool(placeholder.after)
        return self._find_gap(next_, next_, around, placeholder.parent, side)
