"""Marked-up text: what of it is to be translated, and how the translations go back between its tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from transduce.config import BadInputError
from transduce.text.blocks import Block, find_blocks, has_letters
from transduce.text.html import read_html
from transduce.text.pieces import AlignedText
from transduce.text.projection import find_cuts, is_cut, write_block


@final
@dataclass(frozen=True)
class Segment:
    """Text to be translated on its own: a sentence or, where none are told apart, a block or what ``br`` makes of it.

    ``text`` is plain, without markup and character references, its white space collapsed; ``tagged`` says that tags or
    other things stand within it, so that an alignment is of use.
    """

    text: str
    tagged: bool


@final
class Markup:
    """A page or a fragment of HTML.

    Tags stay around the words that they stood around, as the alignment has it; attributes have their values.
    What is left alone: ``translate="no"`` and the class ``notranslate`` (but for ``translate="yes"`` within), code and
    preformatted text, scripts, styles, ``textarea``, drawings and formulas, embedded pages and media, attributes,
    comments. What stands within a sentence comes out at its place in it: see ``text.projection``.
    """

    def __init__(self, parts: Sequence[Block | str]) -> None:
        self._parts = tuple(parts)
        self._segments = tuple(_find_segments(self._parts))

    @classmethod
    def read(cls, html: str, language: str | None = None) -> "Markup":
        """Read what may be any text.

        Args:
            html: A page, or a fragment.
            language: Its language, a code such as ``de``, to split blocks into sentences (``split_sentences``). None
                leaves them whole.

        Raises:
            BadInputError: ``html`` holds half of a surrogate pair, or elements in more than 1,000 others; or
                ``language`` is no language.
            TransduceError: The extra ``markup`` is not installed or, with a language, ``paragraphs``.
        """
        return cls(find_blocks(read_html(html), language))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What is to be translated, in order."""
        return self._segments

    def write(self, outputs: Sequence[AlignedText | None]) -> str:
        """The markup with a translation of each segment; None leaves one as it is.

        Without an alignment, tags go by the places of words in the sentence. What comes out is well-formed: every
        element that was there is there once, and has an end.

        Raises:
            BadInputError: There are more outputs than segments, or fewer; or an alignment names a word that there is
                not.
        """
        if len(outputs) != len(self._segments):
            raise BadInputError(f"{len(outputs):,} outputs for {len(self._segments):,} segments: give one for each")
        waiting = iter(outputs)
        written = []
        for part in self._parts:
            if isinstance(part, str):
                written.append(part)
            else:
                texts = (part.text[start:end] for start, end in part.sentences)
                written.append(write_block(part, [next(waiting) if has_letters(text) else None for text in texts]))
        return "".join(written)


def _find_segments(parts: Sequence[Block | str]) -> list[Segment]:
    found = []
    for block in parts:
        if isinstance(block, Block):
            cuts = find_cuts(block)
            for start, end in block.sentences:
                text = block.text[start:end]
                if has_letters(text):
                    found.append(Segment(text, is_cut(cuts, (start, end))))
    return found
