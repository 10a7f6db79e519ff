"""Where the elements and placeholders of a block stand in its translation.

An element goes around the words that stand for its own: the stretch of them in which there are the fewest others, in
relation. So it comes out once, whole and nested as before, whatever the alignment is; a link is never doubled, and a
word that stands far away does not draw the rest of the sentence into it. An element for whose words nothing stands goes
around a word beside the place where they stood. A placeholder is no part of what a model reads: it would have to be
copied, and models lose such things. It stands between the words that stand for its neighbours.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from transduce.config import BadInputError
from transduce.text.blocks import Block, Placeholder, has_letters
from transduce.text.html import escape_text
from transduce.text.pieces import AlignedText, Piece, cut_words, match_pieces
from transduce.text.sentences import find_gap

_BLOCK: Final = -1  # what is no element's is the block's own
_NEAR: Final = 4  # pieces on either side that have a say in where a placeholder stands

Range = tuple[int, int]


@final
@dataclass(frozen=True)
class Segment:
    """Text to be translated on its own: a sentence or, where none are told apart, a block or what a line's end leaves.

    ``text`` is plain, without markup and character references, its white space collapsed; ``tagged`` says that tags or
    other things stand within it, so that an alignment is of use.
    """

    text: str
    tagged: bool


def find_segments(block: Block) -> list[Segment]:
    """The sentences of a block that have letters."""
    cuts = _find_cuts(block)
    sentences = [(start, end) for start, end in block.sentences if has_letters(block.text[start:end])]
    return [Segment(block.text[start:end], bool(_cuts_within(cuts, start, end))) for start, end in sentences]


def check_count(outputs: Sequence[AlignedText | None], segments: Sequence[Segment]) -> None:
    """See that there is an output for each segment.

    Raises:
        BadInputError: There are more, or fewer.
    """
    if len(outputs) != len(segments):
        raise BadInputError(f"{len(outputs):,} outputs for {len(segments):,} segments: give one for each")


def write_block(block: Block, outputs: Iterator[AlignedText | None], escape: Callable[[str], str] = escape_text) -> str:
    """A block with the next outputs as translations of its segments; of None, one stays as it is.

    Raises:
        BadInputError: An alignment names a word that there is not.
    """
    texts = (block.text[start:end] for start, end in block.sentences)
    several = [next(outputs) if has_letters(text) else None for text in texts]
    if all(output is None for output in several):
        return block.markup
    text = _match(block, several)
    writer = _Writer(text.pieces, escape)
    _write(block, text, writer)
    return "".join([block.before, *writer.parts, escape(text.rest), block.after])


def _find_cuts(block: Block) -> list[int]:
    """The places in a block's text where something begins, ends or stands, in rising order."""
    places = {each.offset for each in block.placeholders}
    places.update(place for element in block.elements for place in (element.start, element.end))
    return sorted(places)


def _cuts_within(cuts: Sequence[int], start: int, end: int) -> Sequence[int]:
    return cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]


@final
@dataclass(frozen=True)
class _Text:
    """The translation of a block in pieces, which stand for pieces of the source.

    Of the source's pieces, ``starts`` has the places in its text, ``elements`` those that they stand in, and
    ``standing`` the pieces of the translation that stand for them. ``sources`` and ``pieces_before`` have the number of
    either before each sentence, and of all. ``rest`` is the white space behind the last.
    """

    pieces: list[Piece]
    starts: list[int]
    elements: list[int]
    standing: list[list[int]]
    sources_before: list[int]
    pieces_before: list[int]
    rest: str


def _match(block: Block, outputs: Sequence[AlignedText | None]) -> _Text:
    """Match the sentences of a block with their translations, piece by piece."""
    cuts = _find_cuts(block)
    pieces: list[Piece] = []
    starts: list[int] = []
    sources_before, pieces_before = [0], [0]
    source, stopped, written = "", 0, ""
    for (start, end), output in zip(block.sentences, outputs, strict=True):
        separator = block.text[stopped:start]
        space = find_gap(source, separator, written) if source else separator
        source, stopped = block.text[start:end], end
        inner = [cut - start for cut in _cuts_within(cuts, start, end)]
        spans = cut_words(source, inner) if inner else [(0, len(source))]
        if output is None:
            found = _keep(source, spans)
        elif inner:
            found = match_pieces(source, spans, output)
        else:
            found = [Piece("", whole, 0)] if (whole := output.text.strip()) else []
        for number, piece in enumerate(found):
            owner = None if piece.source is None else piece.source + len(starts)
            pieces.append(Piece(piece.space if number else space, piece.text, owner))
        starts += [start + begin for begin, _ in spans]
        sources_before.append(len(starts))
        pieces_before.append(len(pieces))
        written = found[-1].text if found else ""
    elements = [_find_owner(block, start) for start in starts]
    rest = block.text[stopped:]
    # White space that browsers keep, as in <b>&nbsp;one&nbsp;</b>, stays in its element.
    if pieces and pieces[0].space and _find_owner(block, 0) == _find_owner(block, block.sentences[0][0]):
        pieces[0] = Piece("", pieces[0].space + pieces[0].text, pieces[0].source)
    if pieces and rest and _find_owner(block, stopped) == _find_owner(block, stopped - 1):
        pieces[-1], rest = Piece(pieces[-1].space, pieces[-1].text + rest, pieces[-1].source), ""
    standing: list[list[int]] = [[] for _ in starts]
    for index, piece in enumerate(pieces):
        if piece.source is not None:
            standing[piece.source].append(index)
    return _Text(pieces, starts, elements, standing, sources_before, pieces_before, rest)


def _find_owner(block: Block, place: int) -> int:
    """The element that a character of a block stands in."""
    return block.owners[bisect_right(block.owners, place, key=lambda owner: owner[0]) - 1][1]


def _keep(source: str, spans: Sequence[Range]) -> list[Piece]:
    """A sentence's pieces as its translation's."""
    ends = [0, *(end for _, end in spans)]
    return [Piece(source[ends[n] : start], source[start:end], n) for n, (start, end) in enumerate(spans)]


@final
class _Places:
    """Where among a translation's pieces each element of its block starts and ends, and each placeholder stands."""

    def __init__(self, block: Block, text: _Text) -> None:
        self._text = text
        self._sources: list[Range] = []
        self._inside: list[list[Range]] = [[] for _ in range(len(block.elements) + 1)]  # the block's own are last
        found = {_BLOCK: (0, len(text.pieces))}
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
        return element == _BLOCK or self._sources[element][0] <= source < self._sources[element][1]

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


def _write(block: Block, text: _Text, writer: "_Writer") -> None:
    """The pieces with the elements around them and the placeholders between them."""
    places = _Places(block, text)
    # At the same place, what has no words comes before an element that begins there.
    inside: list[list[tuple[int, bool, int, int | Placeholder]]] = [[] for _ in range(len(block.elements) + 1)]
    for index, element in enumerate(block.elements):
        start, end = places.elements[index]
        inside[element.parent].append((start, start < end, element.number, index))
    for placeholder, gap in zip(block.placeholders, places.placeholders, strict=True):
        inside[placeholder.parent].append((gap, False, placeholder.number, placeholder))
    open_ = [(_BLOCK, iter(sorted(inside[_BLOCK])))]
    while open_:
        index, rest = open_[-1]
        if (part := next(rest, None)) is None:
            open_.pop()
            writer.write_pieces(places.elements[index][1])
            if index != _BLOCK:
                writer.close(block.elements[index].closing)
            continue
        place, _, _, item = part
        writer.write_pieces(place)
        if isinstance(item, Placeholder):
            writer.insert(item)
        else:
            writer.open(block.elements[item].opening)
            open_.append((item, iter(sorted(inside[item]))))


@final
class _Writer:
    """What has been written, and the white space that comes before the next word or tag that begins something."""

    def __init__(self, pieces: Sequence[Piece], escape: Callable[[str], str]) -> None:
        self.parts: list[str] = []
        self._escape = escape
        self._pieces = pieces
        self._next = 0
        self._space = pieces[0].space if pieces else ""

    def write_pieces(self, end: int) -> None:
        """All pieces before this one that have not been written."""
        for index in range(self._next, end):
            self.open(self._escape(self._pieces[index].text))
            self._space = self._pieces[index + 1].space if index + 1 < len(self._pieces) else ""
        self._next = max(self._next, end)

    def open(self, markup: str) -> None:
        """What comes behind the white space."""
        self.parts += [self._escape(self._space), markup]
        self._space = ""

    def close(self, markup: str) -> None:
        """What comes before it."""
        self.parts.append(markup)

    def insert(self, placeholder: Placeholder) -> None:
        """What has white space of its own."""
        if placeholder.before:
            self._space = self._space or placeholder.before
            self.open(placeholder.markup)
        else:
            self.close(placeholder.markup)
        self._space = self._space or placeholder.after
