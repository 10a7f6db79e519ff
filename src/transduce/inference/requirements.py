"""What people ask of outputs, turned into settings of a search and constraints over ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from transduce.config import BadInputError, GenerationConfig
from transduce.data import bare
from transduce.inference.arguments import check_text, name_kind, read_texts
from transduce.models import Shortlist
from transduce.search import (
    Constraint,
    Containing,
    LengthPenalty,
    NoRepeat,
    Offered,
    Prefixes,
    Sampling,
    SearchSettings,
    Without,
)
from transduce.text import Tokenizer


def search_settings(
    generation: GenerationConfig, n_best: int, tokenizer: Tokenizer, shortlist: Shortlist | None
) -> SearchSettings:
    """How to search for ``n_best`` outputs of each text; ``tokenizer`` is the target's.

    Raises:
        BadInputError: More outputs are asked for than the beam has hypotheses, or more of these than there are symbols.
    """
    beam_size, sampling = generation.beam_size, None
    if generation.sampling:
        beam_size = n_best  # every sample is a row of its own
        sampling = Sampling(generation.temperature, generation.top_k, generation.top_p, generation.seed)
    elif n_best > beam_size:
        raise BadInputError(
            f"n-best {n_best}: the beam keeps {beam_size} hypotheses: ask for {beam_size} at most, or widen it "
            f"(--beam-size {n_best}, or beam_size={n_best})"
        )
    elif beam_size > tokenizer.vocab_size:
        raise BadInputError(f"beam size {beam_size}: is wider than the vocabulary, {tokenizer.vocab_size} symbols")
    special, no_repeat = tokenizer.special, generation.no_repeat_ngram
    forbidden: tuple[int, ...] = (special.pad, special.begin)
    constraints: tuple[Constraint, ...] = (NoRepeat(no_repeat),) if no_repeat else ()
    if generation.replace_unknown and not tokenizer.knows_all:
        constraints = (*constraints, Offered((special.unknown,)))
    else:
        forbidden = (*forbidden, special.unknown)
    return SearchSettings(
        begin_id=special.begin,
        end_id=special.end,
        forbidden=forbidden,
        beam_size=beam_size,
        n_best=n_best,
        penalty=LengthPenalty(generation.length_penalty_kind, generation.length_penalty),
        stopping=generation.stopping,
        min_length=generation.min_length,
        coverage=generation.coverage_penalty,
        diversity=generation.diversity,
        sampling=sampling,
        constraints=constraints,
        shortlist=shortlist,
    )


@final
@dataclass(frozen=True)
class OutputRequirements:
    """A prefix and phrases for each text, and phrases that no output may have; None where nothing is asked."""

    prefixes: Sequence[str] | None = None
    must_contain: Sequence[Sequence[str]] | None = None
    must_not_contain: Sequence[str] = ()

    @classmethod
    def read(
        cls,
        texts: Sequence[str],
        first_number: int,
        prefixes: Iterable[str] | None,
        must_contain: Iterable[Iterable[str]] | None,
        must_not_contain: Iterable[str] | None,
    ) -> "OutputRequirements":
        """What is asked of the outputs of texts, which are numbered from ``first_number``.

        Raises:
            BadInputError: Something has not the shape that it should have: there are more or fewer prefixes or lists of
                phrases than texts, or something is no string.
        """
        if isinstance(must_not_contain, str):
            raise BadInputError("must not contain: one string was given: give a list of phrases")
        banned = [] if must_not_contain is None else read_texts(must_not_contain, "must not contain, phrase")
        if prefixes is not None:
            if isinstance(prefixes, str):
                raise BadInputError("prefixes: one string was given: give one for each text, in brackets")
            prefixes = read_texts(prefixes, "prefix of text", first_number)
            _check_number("prefixes", prefixes, texts)
        wanted = None
        if must_contain is not None:
            name = "lists of phrases that outputs must contain"
            if isinstance(must_contain, str) or not isinstance(must_contain, Iterable):
                raise BadInputError(f"{name}: {name_kind(must_contain)} was given: give one for each text, in brackets")
            given = list(must_contain)
            _check_number(name, given, texts)
            wanted = [_phrases(phrases, number) for number, phrases in enumerate(given, first_number)]
        return cls(prefixes, wanted, banned)

    def constraints(
        self, texts: Sequence[str], first_number: int, tokenizer: Tokenizer
    ) -> tuple[tuple[Constraint, ...], dict[int, BadInputError]]:
        """What search has to follow; and of texts from whose outputs nobody can have what is asked, by index, why.

        The texts are numbered from ``first_number``. An empty one has an empty output, whatever is asked of it.

        Raises:
            BadInputError: Of what no output may have, a phrase is empty, or the vocabulary lacks a symbol of it.
        """
        refused: dict[int, BadInputError] = {}

        def encode_each(asked: Sequence[Sequence[str]], what: str, place: str) -> dict[int, list[list[int]]]:
            """The ids for each text, by its number."""
            found: dict[int, list[list[int]]] = {}
            for index, (text, strings) in enumerate(zip(texts, asked, strict=True)):
                ids = _encode_for(text, strings, tokenizer, what, place)
                if isinstance(ids, BadInputError):
                    refused.setdefault(index, ids)
                else:
                    found[first_number + index] = ids
            return found

        found: list[Constraint] = []
        if self.prefixes is not None:
            prefixes = encode_each([[each] if each.strip() else [] for each in self.prefixes], "a prefix", "prefix")
            found.append(Prefixes({number: ids for number, several in prefixes.items() for ids in several}))
        if self.must_contain is not None:
            wanted = encode_each(self.must_contain, "something to contain", "must contain")
            found.append(Containing(wanted, tokenizer.special.end))
        if self.must_not_contain:
            found.append(Without(_encode(tokenizer, self.must_not_contain, "must not contain")))
        return tuple(found), refused


def _encode_for(
    text: str, asked: Sequence[str], tokenizer: Tokenizer, what: str, place: str
) -> list[list[int]] | BadInputError:
    """The ids of what is asked of a text's output, or why it cannot have it."""
    if not asked:
        return []
    if not text.strip():
        return BadInputError(f"it is empty, and so is its output, which cannot have {what}")
    try:
        return _encode(tokenizer, asked, place)
    except BadInputError as error:
        return error


def _phrases(phrases: object, number: int) -> list[str]:
    place = f"must contain, text {number:,}"
    if isinstance(phrases, str):
        raise BadInputError(f"{place}: one string was given: give a list of phrases")
    return read_texts(phrases, f"{place}, phrase")


def _encode(tokenizer: Tokenizer, texts: Sequence[str], place: str) -> list[list[int]]:
    for text in texts:
        check_text(text, place)
        if not text.strip():
            raise BadInputError(f"{place}: a phrase is empty: leave it out")
    texts = [bare(text) for text in texts]  # such as readlines() gives them
    encoded = tokenizer.encode(texts)
    for text, ids in zip(texts, encoded, strict=True):
        if tokenizer.special.unknown in ids:
            raise BadInputError(f"{place}: the vocabulary cannot write {text!r}")
    return encoded


def _check_number(name: str, given: Sequence[object], texts: Sequence[str]) -> None:
    if len(given) != len(texts):
        raise BadInputError(f"{len(given):,} {name} for {len(texts):,} texts: give one for each, in their order")
