"""Documents of the kinds that can be translated whole."""

from collections.abc import Sequence
from typing import Literal, Protocol, assert_never

from transduce.text.markup import Markup
from transduce.text.pieces import AlignedText
from transduce.text.projection import Segment
from transduce.text.subtitles import Subtitles

DocumentKind = Literal["html", "srt"]


class Document(Protocol):
    """What has texts to be translated in it, and can be written with their translations."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What is to be translated, in order."""

    def write(self, outputs: Sequence[AlignedText | None]) -> str:
        """The document with a translation of each segment; None leaves one as it is."""


def read_document(kind: DocumentKind, text: str, language: str | None = None) -> Document:
    """Read a page or fragment of HTML (``Markup``), or subtitles (``Subtitles``).

    Args:
        kind: What it is.
        text: All of it.
        language: Its language, to split it into sentences; None leaves blocks and cues whole.

    Raises:
        BadInputError: It cannot be read as such, or ``language`` is no language.
        TransduceError: An extra is not installed.
    """
    match kind:
        case "html":
            return Markup.read(text, language)
        case "srt":
            return Subtitles.read(text, language)
        case _:
            assert_never(kind)
