"""Blocks as segments to be translated, and written again with the translations between their tags (``placing``)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from transduce.config import BadInputError
from transduce.text.blocks import Block, Placeholder, has_letters
from transduce.text.html import escape_text
from transduce.text.matching import MatchedText, cuts_within, find_cuts, match_block
from transduce.text.pieces import AlignedText, Piece
from transduce.text.placing import BLOCK, Places


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
    cuts = find_cuts(block)
    sentences = [(start, end) for start, end in block.sentences if has_letters(block.text[start:end])]
    return [Segment(block.text[start:end], bool(cuts_within(cuts, start, end))) for start, end in sentences]


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
    text = match_block(block, several)
    writer = _Writer(text.pieces, escape)
    _write(block, text, writer)
    return "".join([block.before, *writer.parts, escape(text.rest), block.after])


def _write(block: Block, text: MatchedText, writer: "_Writer") -> None:
    """The pieces with the elements around them and the placeholders between them."""
    places = Places(block, text)
    # At the same place, what has no words comes before an element that begins there.
    inside: list[list[tuple[int, bool, int, int | Placeholder]]] = [[] for _ in range(len(block.elements) + 1)]
    for index, element in enumerate(block.elements):
        start, end = places.elements[index]
        inside[element.parent].append((start, start < end, element.number, index))
    for placeholder, gap in zip(block.placeholders, places.placeholders, strict=True):
        inside[placeholder.parent].append((gap, False, placeholder.number, placeholder))
    open_ = [(BLOCK, iter(sorted(inside[BLOCK])))]
    while open_:
        index, rest = open_[-1]
        if (part := next(rest, None)) is None:
            open_.pop()
            writer.write_pieces(places.elements[index][1])
            if index != BLOCK:
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
