"""Text to sentences, by the rules of the ``sentencex`` library, with nothing lost between them."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

from transduce.config import BadInputError, TransduceError

# The codes of ISO 639-1.
_CODES: Final = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
# What is often taken for one: codes of countries, and ISO 639-2's of three letters.
_MEANT: Final = {
    "at": "de", "au": "en", "cn": "zh", "cz": "cs", "dk": "da", "gb": "en", "gr": "el", "ir": "fa",
    "jp": "ja", "mx": "es", "ua": "uk", "us": "en", "vn": "vi", "ara": "ar", "ces": "cs", "chi": "zh",
    "cze": "cs", "dan": "da", "deu": "de", "dut": "nl", "ell": "el", "eng": "en", "fas": "fa", "fin": "fi",
    "fra": "fr", "fre": "fr", "ger": "de", "gre": "el", "heb": "he", "hin": "hi", "hun": "hu", "ita": "it",
    "jpn": "ja", "kor": "ko", "nld": "nl", "nor": "no", "per": "fa", "pol": "pl", "por": "pt", "ron": "ro",
    "rum": "ro", "rus": "ru", "slk": "sk", "slo": "sk", "spa": "es", "swe": "sv", "tur": "tr", "ukr": "uk",
    "vie": "vi", "zho": "zh",
}  # fmt: skip
_LANGUAGE: Final = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9_-]+)?")
# The library takes some of these for one byte long, and panics: "Vitamin B\u00a0." was enough. Its rules see plain
# spaces instead, one for each, so that every place stays where it is.
_SPACE_BEYOND_ASCII: Final = re.compile(r"[^\S\x00-\x7f]")
_HALVES: Final = re.compile(r"[\ud800-\udfff]")  # of surrogate pairs, which Python's strings can hold and UTF-8 cannot
_LINE_FEED: Final = re.compile(r"\s*\n\s*")
# The library's time grows with the square of a text's size where it has quotation marks or is Chinese or Japanese.
_PORTION: Final = 4000  # characters
_AHEAD: Final = 200  # what follows a sentence may say that it goes on


def split_sentences(text: str, language: str = "en", *, at_line_feeds: bool = False) -> list[tuple[str, str]]:
    """The sentences of a text, each with the white space behind it; all of them joined are the text.

    A sentence neither begins nor ends with white space. White space before the first one stands behind an empty
    sentence. In Chinese or Japanese the separators may be empty. The rules prefer two sentences left together to one
    torn apart; an empty line always ends a sentence, a lone line feed only where that is asked for.

    Args:
        text: Any text.
        language: An ISO 639-1 code such as ``de``; a region behind it (``de-AT``) counts for nothing. Three letters
            are for languages that have no such code. A language that the library does not know has the rules of a
            related one, or English's.
        at_line_feeds: Whether every line feed ends a sentence, as in a list or a poem; otherwise lines are taken for a
            text's that was broken at some width.

    Raises:
        BadInputError: ``language`` is no language code, or one of a country, or there is a shorter one.
        TransduceError: The extra ``paragraphs`` is not installed.
    """
    spans = list(_spans(text, _code(language)))
    if at_line_feeds:
        spans = [line for start, end in spans for line in _lines(text, start, end)]
    starts = [start for start, _ in spans] + [len(text)]
    parts = [(text[start:end], text[end:following]) for (start, end), following in zip(spans, starts[1:], strict=True)]
    return [("", text[: starts[0]]), *parts] if starts[0] else parts


def check_language(language: str) -> None:
    """Refuse what ``split_sentences`` does not take for a language code, before there is any text.

    Raises:
        BadInputError: ``language`` is no language code, or one of a country, or there is a shorter one.
    """
    _code(language)


def find_gap(sentence: str, separator: str, translation: str) -> str:
    """What stands between a translation and the next one, where the separator stood behind its sentence.

    It is the same, or a space where Chinese or Japanese needs none and the translation does.
    """
    return " " if not separator and _ends_wide(sentence) and not _ends_wide(translation) else separator


def _ends_wide(text: str) -> bool:
    # The last two: a wide full stop may be followed by a quotation mark, which is as wide as its neighbours.
    return any(unicodedata.east_asian_width(character) in "WF" for character in text[-2:])


def _code(language: str) -> str:
    """The code as the library knows it: anything else, ``DE`` included, it takes for English."""
    match = _LANGUAGE.fullmatch(language)
    if match is None:
        raise BadInputError(f"language {language!r}: not a language code: give one such as 'de' or 'en'")
    code = match[1].lower()
    if code in _CODES.split():
        return code
    if code in _MEANT:
        raise BadInputError(f"language {language!r}: did you mean {_MEANT[code]!r}?")
    if len(code) == 2:  # as those of ISO 639-1 have; with three letters there are thousands
        raise BadInputError(f"language {language!r}: there is no such language: give its code of ISO 639-1, as 'de'")
    return code


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The lines of one sentence, white space around them left out."""
    for feed in _LINE_FEED.finditer(text, start, end):
        yield start, feed.start()
        start = feed.end()
    yield start, end


def _spans(text: str, code: str) -> Iterator[tuple[int, int]]:
    """Where each sentence starts and ends, white space around it left out."""
    try:
        from sentencex import segment  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError(
            "splitting paragraphs into sentences needs sentencex: pip install 'transduce[paragraphs]'"
        ) from error
    plain = _HALVES.sub("\ufffd", _SPACE_BEYOND_ASCII.sub(" ", text))
    begin, size = 0, _PORTION
    while begin < len(text):
        pieces: list[str] = segment(code, plain[begin : begin + size])
        ends = list(accumulate(map(len, pieces), initial=begin))
        if begin + size < len(text):
            while ends[-1] > begin + size - _AHEAD:
                ends.pop()
            if len(ends) == 1:
                size *= 2
                continue
        for start, end in pairwise(ends):
            piece = text[start:end]
            if piece.strip():
                yield end - len(piece.lstrip()), start + len(piece.rstrip())
        begin, size = ends[-1], _PORTION
