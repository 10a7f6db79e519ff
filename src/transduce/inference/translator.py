"""The Translator: text in, text out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Final, NoReturn, Unpack, final

import torch

from transduce.bundle import Bundle, load_bundle, load_shortlist
from transduce.config import BadInputError, GenerationChanges, GenerationConfig, Precision, TransduceError
from transduce.data import bare
from transduce.inference.alignment import align, word_numbers
from transduce.inference.engine import Attention, Engine
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.inference.translation import EMPTY, Translation, warn_of_limits
from transduce.inference.wishes import Wishes
from transduce.kernels import run_safely
from transduce.models import Shortlist
from transduce.search import (
    Constraint,
    Hypothesis,
    LengthPenalty,
    NoRepeat,
    NothingFoundError,
    Sampling,
    SearchSettings,
)
from transduce.text import Tokenizer

# Of a text that an error shows, so many characters.
_SHOWN: Final = 40


@final
class Translator:
    """A loaded model that writes one output for every input, in the order of the input, empty for empty.

    Several bundles are an ensemble: the mean of their probabilities. How it writes is the first one's to say. With a
    shortlist, it writes each output with what is in its text's list. With ``consume`` it takes the bundles' models
    themselves, in place of copies.
    """

    def __init__(
        self,
        bundle: Bundle | Sequence[Bundle],
        precision: Precision = "auto",
        device: torch.device | None = None,
        shortlist: Shortlist | None = None,
        *,
        consume: bool = False,
    ) -> None:
        bundles = [bundle] if isinstance(bundle, Bundle) else bundle
        first = bundles[0]
        self._source, self._target = first.tokenizers.source, first.tokenizers.target
        self._defaults = first.generation
        models, special = [each.model for each in bundles], first.tokenizers.special
        self._engine = Engine(models, special, precision, device, consume=consume)
        self._shortlist = None if shortlist is None else shortlist.to(self._engine.device)

    def translate(
        self,
        texts: list[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        return_attention: bool = False,
        *,
        return_alignment: bool = False,
        prefixes: Sequence[str] | None = None,
        must_contain: Sequence[Sequence[str]] | None = None,
        must_not_contain: Sequence[str] = (),
        paragraphs: bool = False,
        language: str | None = None,
        first_number: int | None = 1,
        **changes: Unpack[GenerationChanges],
    ) -> list[Translation]:
        """Translate texts, one sentence each. None means what the model's ``generation_config.json`` says.

        Text of nothing but white space is empty. Line ends behind a text are no part of it, nor is a byte-order mark
        before it (``data.bare``), as in files; with ``paragraphs``, white space stays. No text is cut. An output that
        reached the length limit may lack its end: a warning names the numbers of such texts.

        Args:
            texts: The sources.
            beam_size: Open hypotheses; 1 is greedy search.
            length_penalty: Alpha.
            n_best: Outputs for each text, the best one first; with ``sampling``, how many are drawn. Fewer come where
                the search ends with fewer.
            return_attention: Whether to give the attention weights of each output.
            return_alignment: Whether to give which word of the source each word of the output comes from.
            prefixes: How each output begins; an empty one leaves it free.
            must_contain: The phrases that each output must have, token for token.
            must_not_contain: The phrases that no output may have, token for token.
            paragraphs: Whether texts may have several sentences: each is translated on its own, and what stood between
                them stands between their translations. Needs the extra ``paragraphs``.
            language: The language of the sources, for splitting paragraphs: a code such as ``de``. None means ``en``.
            first_number: The number that a warning gives the first text; None leaves the warning out. Samples follow
                from the numbers too: a text of the same number and seed gets the same ones (None counts from 1).
            **changes: Any other setting of ``config.GenerationConfig``, by its name.

        Raises:
            BadInputError: A number is out of range, options exclude each other, what is asked of an output cannot be
                met, or a text is longer than the positions that the model has learned.
        """
        if isinstance(texts, str):
            raise BadInputError("translate takes a list of texts, not one string: put it in brackets")
        generation = self._defaults.changed({"beam_size": beam_size, "length_penalty": length_penalty, **changes})
        if generation.sampling and beam_size is not None:
            raise BadInputError(f"beam size {beam_size}: sampling has no beam: leave it out (n-best says how many)")
        settings = self._settings(generation, n_best)
        wishes = Wishes(prefixes, must_contain, must_not_contain)
        looks = return_attention, return_alignment
        if paragraphs:
            asked = {
                "attention weights": return_attention,
                "alignment": return_alignment,
                "prefix": prefixes is not None,
                "phrases that it must contain": must_contain is not None,
                "samples": generation.sampling,
            }
            check_options(n_best, asked)
            results = translate_paragraphs(
                texts,
                language or "en",
                lambda each: self._translate(each, generation, settings, wishes, looks, None),
            )
        elif language is not None:
            raise BadInputError(f"language {language!r}: is for splitting paragraphs, and none are to be split")
        else:
            results = self._translate(texts, generation, settings, wishes, looks, first_number)
        if first_number is not None:
            warn_of_limits(results, first_number, self._engine.longest)
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str], *, first_number: int = 1) -> list[float]:
        """The natural log-probability of each target given its source, both ``bare``, end symbol counted.

        Raises:
            BadInputError: A side of a pair, the first being number ``first_number``, is longer than the positions that
                the model has learned.
        """
        remedy = "leave the pair out"
        return self._engine.score(
            self._encode(self._source, [bare(text) for text in sources], first_number, "source", remedy),
            self._encode(self._target, [bare(text) for text in targets], first_number, "target", remedy),
        )

    def count_tokens(self, texts: Sequence[str]) -> int:
        """How many symbols the texts have as targets, end symbols counted."""
        return sum(len(ids) + 1 for ids in self._target.encode([bare(text) for text in texts]))

    def __reduce__(self) -> NoReturn:
        """What pickle and copy ask for.

        Raises:
            TransduceError: Always: addresses and threads of this process mean nothing elsewhere.
        """
        raise TransduceError(
            "a Translator cannot be pickled or copied: load the model in each process (transduce.load), or start the "
            'processes by "fork"; threads may share one'
        )

    def _encode(
        self, tokenizer: Tokenizer, texts: Sequence[str], first_number: int | None, name: str, remedy: str
    ) -> list[list[int]]:
        encoded, longest = tokenizer.encode(texts), self._engine.longest
        for index, ids in enumerate(encoded):
            if longest is not None and len(ids) >= longest:
                # A sentence of a paragraph has no number that its reader would know.
                place = repr(texts[index][:_SHOWN]) if first_number is None else f"{name} {first_number + index:,}"
                raise BadInputError(
                    f"{place}: {len(ids) + 1:,} symbols with the end symbol, but the model has learned {longest:,} "
                    f"positions (max_positions): {remedy}"
                )
        return encoded

    def _settings(self, generation: GenerationConfig, n_best: int) -> SearchSettings:
        beam_size = generation.beam_size
        if generation.sampling:
            if n_best < 1:
                raise BadInputError(f"n-best {n_best}: must be 1 or more")
            beam_size = n_best  # every sample is a row of its own
        elif not 1 <= n_best <= beam_size:
            raise BadInputError(f"n-best {n_best}: must be between 1 and the beam size, {beam_size}")
        elif beam_size > self._target.vocab_size:
            raise BadInputError(
                f"beam size {beam_size}: is wider than the vocabulary, {self._target.vocab_size} symbols"
            )
        special, no_repeat = self._target.special, generation.no_repeat_ngram
        return SearchSettings(
            begin_id=special.begin,
            end_id=special.end,
            forbidden=(special.pad, special.begin, special.unknown),
            beam_size=beam_size,
            n_best=n_best,
            penalty=LengthPenalty(generation.length_penalty_kind, generation.length_penalty),
            stopping=generation.stopping,
            min_length=generation.min_length,
            coverage=generation.coverage_penalty,
            diversity=generation.diversity,
            sampling=_sampling(generation),
            constraints=() if no_repeat is None else (NoRepeat(no_repeat),),
            shortlist=self._shortlist,
        )

    def _translate(
        self,
        texts: Sequence[str],
        generation: GenerationConfig,
        settings: SearchSettings,
        wishes: Wishes,
        looks: tuple[bool, bool],
        first_number: int | None,
    ) -> list[Translation]:
        texts = [bare(text) for text in texts]
        full = [index for index, text in enumerate(texts) if text.strip()]
        # White space alone is never read, and so never too long.
        read = [text if text.strip() else "" for text in texts]
        remedy = "split it (--paragraphs, or paragraphs=True)"
        sources = self._encode(self._source, read, first_number, "text", remedy)
        first = 1 if first_number is None else first_number
        constraints: tuple[Constraint, ...] = (*settings.constraints, *wishes.constraints(texts, first, self._target))
        try:
            found = self._engine.search(
                [sources[index] for index in full],
                replace(settings, constraints=constraints),
                generation.max_extra_length,
                generation.max_length,
                [first + index for index in full],
            )
        except NothingFoundError as error:
            text = texts[error.number - first]
            place = repr(text[:_SHOWN]) if first_number is None else f"text {error.number:,}"
            raise BadInputError(
                f"{place}: the search found no output of at most {error.limit - 1:,} tokens that is all that was asked "
                f"for (prefix, phrases, shortest length, n-grams): ask for less, widen the beam, or raise max_length"
            ) from error
        results = [EMPTY] * len(texts)
        outputs = self._outputs([sources[index] for index in full], found, looks)
        for index, several in zip(full, outputs, strict=True):
            limit = self._engine.limit(sources[index], generation.max_extra_length, generation.max_length)
            best, *others = (replace(each, at_limit=len(each.tokens) + 1 >= limit) for each in several)
            results[index] = replace(best, alternatives=tuple(others))
        return results

    def _outputs(
        self, sources: list[list[int]], found: list[list[Hypothesis]], looks: tuple[bool, bool]
    ) -> list[list[Translation]]:
        """Each source's outputs, best first, with what they have looked at where that is asked for."""
        pairs = [(source, each) for source, several in zip(sources, found, strict=True) for each in several]
        attention: Sequence[Attention | None] = [None] * len(pairs)
        if any(looks):
            attention = self._engine.attention([source for source, _ in pairs], [list(each.ids) for _, each in pairs])
        texts = self._target.decode([each.ids for _, each in pairs])
        every = (
            self._output(source, hypothesis, text, looked, looks)
            for (source, hypothesis), text, looked in zip(pairs, texts, attention, strict=True)
        )
        return [list(islice(every, len(several))) for several in found]

    def _output(
        self, source: list[int], hypothesis: Hypothesis, text: str, looked: Attention | None, looks: tuple[bool, bool]
    ) -> Translation:
        weights, aligned = (looked if wanted else None for wanted in looks)
        return Translation(
            text,
            hypothesis.log_probability,
            hypothesis.score,
            tuple(self._target.tokens(hypothesis.ids)),
            None if weights is None else weights.last.numpy(),
            alignment=None
            if aligned is None
            else align(aligned.aligned, word_numbers(self._source, source), word_numbers(self._target, hypothesis.ids)),
        )


def _sampling(generation: GenerationConfig) -> Sampling | None:
    if not generation.sampling:
        return None
    return Sampling(generation.temperature, generation.top_k, generation.top_p, generation.seed)


def load(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    precision: Precision = "auto",
    device: str | None = None,
    *,
    shortlist: bool = False,
) -> Translator:
    """Load a model or run directory, or several as an ensemble.

    With ``shortlist``, outputs are written with what the first one's shortlist allows (``transduce shortlist``).

    Raises:
        BadInputError: One is no model directory, a file in it is missing or damaged, or two differ in a vocabulary.
    """
    paths = [Path(each) for each in ([path] if isinstance(path, (str, PathLike)) else path)]
    if not paths:
        raise BadInputError("no model was given: name a model or run directory")
    bundles = run_safely(lambda: [load_bundle(each) for each in paths])
    for other, bundle in zip(paths[1:], bundles[1:], strict=True):
        for side in ("source", "target"):
            one, another = (getattr(each.tokenizers, side).to_json() for each in (bundles[0], bundle))
            if one != another:
                raise BadInputError(
                    f"{other}: has another {side} vocabulary than {paths[0]}: an ensemble shares both vocabularies"
                )
    lists = load_shortlist(paths[0], bundles[0].config) if shortlist else None
    return Translator(bundles, precision, torch.device(device) if device else None, lists, consume=True)
