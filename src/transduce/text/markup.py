"""Marked-up text: what of it is to be translated, and how the translations go back between its tags."""

from collections.abc import Sequence
from typing import final

from transduce.text.blocks import Block
from transduce.text.html import read_html
from transduce.text.pieces import AlignedText
from transduce.text.projection import Segment, check_count, find_segments, write_block
from transduce.text.translatable import find_blocks


@final
class Markup:
    """A page or a fragment of HTML.

    Tags stay around the words that they stood around, as the alignment has it; attributes have their values.
    What is left alone: ``translate="no"`` and the class ``notranslate`` (but for ``translate="yes"`` within), code and
    preformatted text, scripts, styles, ``textarea``, drawings and formulas, embedded pages and media, attributes,
    comments. What stands within a sentence comes out at its place in it: see ``text.placing``.
    """

    def __init__(self, parts: Sequence[Block | str]) -> None:
        self._parts = tuple(parts)
        self._segments = tuple(
            segment for part in self._parts if isinstance(part, Block) for segment in find_segments(part)
        )

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
        check_count(outputs, self._segments)
        waiting = iter(outputs)
        return "".join(part if isinstance(part, str) else write_block(part, waiting) for part in self._parts)
