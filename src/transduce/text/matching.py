"""A block's translation in pieces, each with the piece of the source that it stands for."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from transduce.text.blocks import Block
from transduce.text.pieces import AlignedText, Piece, cut_words, match_pieces
from transduce.text.sentences import find_gap


def find_cuts(block: Block) -> list[int]:
    """The places in a block's text where something begins, ends or stands, in rising order."""
    places = {each.offset for each in block.placeholders}
    places.update(place for element in block.elements for place in (element.start, element.end))
    return sorted(places)


def cuts_within(cuts: Sequence[int], start: int, end: int) -> Sequence[int]:
    """Those of the places that lie within a stretch."""
    return cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]


@final
@dataclass(frozen=True)
class MatchedText:
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


def match_block(block: Block, outputs: Sequence[AlignedText | None]) -> MatchedText:
    """Match the sentences of a block with their translations, piece by piece."""
    cuts = find_cuts(block)
    pieces: list[Piece] = []
    starts: list[int] = []
    sources_before, pieces_before = [0], [0]
    source, stopped, written = "", 0, ""
    for (start, end), output in zip(block.sentences, outputs, strict=True):
        separator = block.text[stopped:start]
        space = find_gap(source, separator, written) if source else separator
        source, stopped = block.text[start:end], end
        inner = [cut - start for cut in cuts_within(cuts, start, end)]
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
    return MatchedText(pieces, starts, elements, standing, sources_before, pieces_before, rest)


def _find_owner(block: Block, place: int) -> int:
    """The element that a character of a block stands in."""
    return block.owners[bisect_right(block.owners, place, key=lambda owner: owner[0]) - 1][1]


def _keep(source: str, spans: Sequence[tuple[int, int]]) -> list[Piece]:
    """A sentence's pieces as its translation's."""
    ends = [0, *(end for _, end in spans)]
    return [Piece(source[ends[n] : start], source[start:end], n) for n, (start, end) in enumerate(spans)]
