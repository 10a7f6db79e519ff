"""Texts to ids where a text may be of any size: what is certainly too long is not read to its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from transduce.config import BadInputError
from transduce.inference.arguments import check_text
from transduce.text import Tokenizer

# A text of more characters than this for each symbol that it may have is looked at by its beginning first.
_CHARACTERS: Final = 32
# A beginning may have more symbols than it has within its text: where it is cut, a word that is one symbol, or unknown
# as a whole, falls apart. Even so they are no more than a tokenizer takes a word apart into.
_SPARE: Final = 1000


@final
@dataclass(frozen=True)
class _TooLong:
    """A text has more symbols than it may have, and nobody has counted them."""


def encode_within(
    tokenizer: Tokenizer, texts: Sequence[str], limit: int, longest: int | None, remedy: str
) -> list[list[int] | BadInputError]:
    """The ids of each text, or why it cannot be read, with what to do.

    At most ``limit`` symbols are read (``max_source_length``), and with the end symbol no more than the ``longest``
    positions of a model that has learned so many.
    """
    most = limit if longest is None else min(limit, longest - 1)
    found: list[list[int] | BadInputError] = []
    for ids in _encode_beginnings(tokenizer, texts, most):
        if isinstance(ids, BadInputError) or (isinstance(ids, list) and len(ids) <= most):
            found.append(ids)
            continue
        if longest is not None and most == longest - 1:
            with_end = f"more than {longest:,}" if isinstance(ids, _TooLong) else f"{len(ids) + 1:,}"
            reason = (
                f"{with_end} symbols with the end symbol, but the model has learned {longest:,} positions "
                f"(max_positions): {remedy}"
            )
        else:
            number = f"more than {most:,}" if isinstance(ids, _TooLong) else f"{len(ids):,}"
            reason = (
                f"{number} symbols, but at most {limit:,} are read (max_source_length): {remedy}, or allow more "
                f"(--max-source-length, or max_source_length in the model's generation_config.json)"
            )
        found.append(BadInputError(reason))
    return found


def _encode_beginnings(
    tokenizer: Tokenizer, texts: Sequence[str], most: int
) -> list[list[int] | _TooLong | BadInputError]:
    """The ids of each text; of a very long one, whose beginning has more than ``most`` symbols already, that it has.

    A tokenizer takes much more memory than a text, and for its normalizations and splits as much time. What it cannot
    encode (half of a surrogate pair) gives its error.
    """
    beginning = _CHARACTERS * most
    results: list[list[int] | _TooLong | BadInputError] = [[]] * len(texts)
    short = []
    for index, text in enumerate(texts):
        if len(text) > beginning:
            (ids,) = _encode(tokenizer, [text[:beginning]])
            if isinstance(ids, list) and len(ids) > 2 * most + _SPARE:
                results[index] = _TooLong()
                continue
        short.append(index)
    for index, ids in zip(short, _encode(tokenizer, [texts[index] for index in short]), strict=True):
        results[index] = ids
    return results


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Sequence[list[int] | BadInputError]:
    try:
        return tokenizer.encode(texts)
    except BadInputError as error:
        if len(texts) == 1:
            return [_explain(texts[0], error)]
    return [ids for text in texts for ids in _encode(tokenizer, [text])]


def _explain(text: str, error: BadInputError) -> BadInputError:
    """The usual cause, which the tokenizer does not tell, or what it tells."""
    try:
        check_text(text)
    except BadInputError as cause:
        return cause
    return error
