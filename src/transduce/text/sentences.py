"""Text to sentences, by the rules of the ``sentencex`` library, with nothing lost between them."""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

from transduce.config import BadInputError, TransduceError

_LANGUAGE: Final = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9_-]+)?")
# The library takes some of these for one byte long, and panics: "Vitamin B\u00a0." was enough. Its rules see plain
# spaces instead, one for each, so that every place stays where it is.
_SPACE_BEYOND_ASCII: Final = re.compile(r"[^\S\x00-\x7f]")


def split_sentences(text: str, language: str = "en") -> list[tuple[str, str]]:
    """The sentences of a text, each with the white space behind it; all of them joined are the text.

    A sentence neither begins nor ends with white space. White space before the first one stands behind an empty
    sentence. In Chinese or Japanese the separators may be empty. The rules prefer two sentences left together to one
    torn apart; an empty line always ends a sentence, a lone line feed never.

    Args:
        text: Any text.
        language: An ISO 639-1 code such as ``de``; a region behind it (``de-AT``) counts for nothing. A language that
            the library does not know has the rules of a related one, or English's.

    Raises:
        BadInputError: ``language`` is no language code.
        TransduceError: The extra ``paragraphs`` is not installed.
    """
    spans = list(_spans(text, _code(language)))
    starts = [start for start, _ in spans] + [len(text)]
    parts = [(text[start:end], text[end:following]) for (start, end), following in zip(spans, starts[1:], strict=True)]
    return [("", text[: starts[0]]), *parts] if starts[0] else parts


def _code(language: str) -> str:
    """The code as the library knows it: anything else, ``DE`` included, it takes for English."""
    match = _LANGUAGE.fullmatch(language)
    if match is None:
        raise BadInputError(f"language {language!r}: not a language code: give one such as 'de' or 'en'")
    return match[1].lower()


def _spans(text: str, code: str) -> Iterator[tuple[int, int]]:
    """Where each sentence starts and ends, white space around it left out."""
    try:
        from sentencex import segment  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError(
            "splitting paragraphs into sentences needs sentencex: pip install 'transduce[paragraphs]'"
        ) from error
    pieces: list[str] = segment(code, _SPACE_BEYOND_ASCII.sub(" ", text))
    for start, end in pairwise(accumulate(map(len, pieces), initial=0)):
        piece = text[start:end]
        if piece.strip():
            yield end - len(piece.lstrip()), start + len(piece.rstrip())
