"""Paragraphs: split into sentences, translated all together, and put together again."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from transduce.config import BadInputError, TransduceError
from transduce.data.lines import is_text
from transduce.inference.arguments import shorten
from transduce.inference.translation import Translation, count_ranks, of_rank
from transduce.text import find_gap, split_sentences

Parts = list[tuple[str, str]]


def check_options(asked: Mapping[str, bool]) -> None:
    """Refuse what only a single sentence has; ``asked`` says which of such things are wanted.

    Raises:
        BadInputError: One is.
    """
    for name, wanted in asked.items():
        if wanted:
            raise BadInputError(f"a paragraph has no {name} of its own: give its sentences one by one")


def translate_paragraphs(
    texts: Sequence[str],
    language: str,
    translate: Callable[[list[str]], Sequence[Translation | TransduceError]],
    *,
    at_line_feeds: bool = False,
) -> list[Translation | TransduceError]:
    """Translate texts of several sentences; what stood between the sentences stands between their translations.

    A text of no sentence is translated as it stands. A line feed ends a sentence only ``at_line_feeds``. Where a
    sentence has no output, neither has its text: the error names the sentence. A text's second best output has each
    sentence's second best, or its best where there is no other, and so on.
    """
    paragraphs = [_split(text, language, at_line_feeds) for text in texts]
    translations = iter(translate([sentence for parts in paragraphs for sentence, _ in parts]))
    return [_join(parts, list(islice(translations, len(parts)))) for parts in paragraphs]


def _split(text: str, language: str, at_line_feeds: bool) -> Parts:
    if not is_text(text):
        return [(text, "")]  # it fails as a text does
    parts = split_sentences(text, language, at_line_feeds=at_line_feeds)
    return parts if any(sentence for sentence, _ in parts) else [(text, "")]


def _join(parts: Parts, outcomes: Sequence[Translation | TransduceError]) -> Translation | TransduceError:
    for (sentence, _), outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, TransduceError):
            return type(outcome)(f"{shorten(sentence)}: {outcome}")
    translations = [each for each in outcomes if isinstance(each, Translation)]
    if len(translations) == 1 and not parts[0][1]:
        return translations[0]
    best, *others = (
        _join_outputs(parts, [of_rank(each, rank) for each in translations])
        for rank in range(count_ranks(translations))
    )
    return replace(best, alternatives=tuple(others))


def _join_outputs(parts: Parts, translations: Sequence[Translation]) -> Translation:
    """One output of each sentence as the text's."""
    texts = [each.text for each in translations]
    gaps = [
        find_gap(sentence, separator, text) for (sentence, separator), text in zip(parts[:-1], texts[:-1], strict=True)
    ]
    return Translation(
        "".join(chain.from_iterable(zip(texts, [*gaps, parts[-1][1]], strict=True))),
        math.fsum(each.log_probability for each in translations),
        math.fsum(each.score for each in translations),
        tuple(chain.from_iterable(each.tokens for each in translations)),
        at_limit=any(each.at_limit for each in translations),
    )
