"""What people ask of the words of an output, turned into constraints over ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from transduce.config import BadInputError
from transduce.data import bare
from transduce.search import Constraint, Containing, Prefixes, Without
from transduce.text import Tokenizer


@final
@dataclass(frozen=True)
class Wishes:
    """A prefix and phrases for each text, and phrases that no output may have; None where nothing is asked."""

    prefixes: Sequence[str] | None = None
    must_contain: Sequence[Sequence[str]] | None = None
    must_not_contain: Sequence[str] = ()

    def constraints(self, texts: Sequence[str], first_number: int, tokenizer: Tokenizer) -> tuple[Constraint, ...]:
        """What search has to follow; the texts are numbered from ``first_number``.

        Raises:
            BadInputError: There are more or fewer prefixes or lists of phrases than texts, a text is empty and yet
                something is asked, a phrase is empty, or the vocabulary lacks a symbol of what is asked.
        """
        numbers = range(first_number, first_number + len(texts))
        found: list[Constraint] = []
        if self.prefixes is not None:
            _check_number("prefixes", self.prefixes, texts)
            _check_emptiness("a prefix", [prefix.strip() for prefix in self.prefixes], texts, numbers)
            places = [f"prefix of text {number:,}" for number in numbers]
            found.append(Prefixes(dict(zip(numbers, _encode(tokenizer, self.prefixes, places), strict=True))))
        if self.must_contain is not None:
            _check_number("lists of phrases that outputs must contain", self.must_contain, texts)
            _check_emptiness("something to contain", self.must_contain, texts, numbers)
            wanted = {
                number: _encode(tokenizer, phrases, [f"must contain, text {number:,}"] * len(phrases), phrases=True)
                for number, phrases in zip(numbers, self.must_contain, strict=True)
            }
            found.append(Containing(wanted, tokenizer.special.end))
        if self.must_not_contain:
            places = ["must not contain"] * len(self.must_not_contain)
            found.append(Without(_encode(tokenizer, self.must_not_contain, places, phrases=True)))
        return tuple(found)


def _encode(
    tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str], *, phrases: bool = False
) -> list[list[int]]:
    if isinstance(texts, str):
        raise BadInputError(f"{places[0]}: one string was given: give a list of phrases")
    texts = [bare(text) for text in texts]  # such as readlines() gives them
    encoded = tokenizer.encode(texts)
    for text, place, ids in zip(texts, places, encoded, strict=True):
        if phrases and not text.strip():
            raise BadInputError(f"{place}: a phrase is empty: leave it out")
        if tokenizer.special.unknown in ids:
            raise BadInputError(f"{place}: the vocabulary cannot write {text!r}")
    return encoded


def _check_number(name: str, given: Sequence[object], texts: Sequence[str]) -> None:
    if isinstance(given, str):
        raise BadInputError(f"{name}: one string was given: give one for each text, in brackets")
    if len(given) != len(texts):
        raise BadInputError(f"{len(given):,} {name} for {len(texts):,} texts: give one for each, in their order")


def _check_emptiness(name: str, given: Sequence[object], texts: Sequence[str], numbers: Sequence[int]) -> None:
    """An empty text has an empty output, whatever is asked of it."""
    for number, text, wanted in zip(numbers, texts, given, strict=True):
        if wanted and not text.strip():
            raise BadInputError(f"text {number:,} is empty, and so is its output: it cannot have {name}")
