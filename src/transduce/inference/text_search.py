"""Texts to outputs by a search over their ids: what is asked for in one call, and what becomes of each text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import final

from transduce.config import BadInputError, GenerationConfig, TransduceError
from transduce.data import bare
from transduce.inference.alignment import align, words_of_output, words_of_tokens
from transduce.inference.encoding import encode_within
from transduce.inference.engine import Attention, Engine
from transduce.inference.requirements import OutputRequirements
from transduce.inference.running import Cancellation
from transduce.inference.translation import EMPTY, Translation, explain
from transduce.inference.unknown_words import UnknownWords
from transduce.search import Constraint, Hypothesis, NothingFound, Prefixes, SearchSettings, TooLittleMemory
from transduce.text import TokenizerPair, fill_unknown


@final
@dataclass(frozen=True)
class TranslationRequest:
    """What is asked for in one call; ``hurry`` says that nothing is worth doing once a text has failed."""

    generation: GenerationConfig
    settings: SearchSettings
    requirements: OutputRequirements
    constraints: tuple[Constraint, ...]
    attention: bool
    alignment: bool
    unknown: UnknownWords
    first: int
    hurry: bool
    cancellation: Cancellation | None


@final
class TextSearch:
    """The engine's search between a tokenizer for each side."""

    def __init__(self, engine: Engine, tokenizers: TokenizerPair) -> None:
        self._engine, self._tokenizers = engine, tokenizers
        self._source, self._target = tokenizers.source, tokenizers.target

    def translate(self, texts: Sequence[str], request: TranslationRequest) -> list[Translation | TransduceError]:
        """Each text's translation, or why it has none."""
        texts = [bare(text) for text in texts]
        empty = replace(EMPTY, alignment=()) if request.alignment else EMPTY
        results: list[Translation | TransduceError] = [empty] * len(texts)
        generation, settings, first = request.generation, request.settings, request.first
        # White space alone is never read, and so never too long.
        full = [index for index, text in enumerate(texts) if text.strip()]
        remedy = "split it (--paragraphs, or paragraphs=True)"
        most, longest = generation.max_source_length, self._engine.longest
        encoded = encode_within(self._source, [texts[index] for index in full], most, longest, remedy)
        requirements, refused = request.requirements.constraints(texts, first, self._target)
        for index, error in refused.items():
            results[index] = error
        prefixes = next((each.ids for each in requirements if isinstance(each, Prefixes)), {})
        sources: dict[int, list[int]] = {}
        for index, ids in zip(full, encoded, strict=True):
            if index in refused:
                continue
            if isinstance(ids, BadInputError):
                results[index] = ids
            elif (prefix := prefixes.get(first + index)) and len(prefix) >= (limit := self._limit(ids, generation)):
                results[index] = explain(NothingFound(limit), len(ids), generation)
            else:
                sources[index] = ids
        if request.hurry and (refused or len(sources) < len(full)):
            return results
        found = self._engine.search(
            list(sources.values()),
            replace(settings, constraints=(*settings.constraints, *requirements, *request.constraints)),
            generation.max_extra_length,
            generation.max_length,
            [first + index for index in sources],
            request.cancellation,
        )
        searched = dict(zip(sources, found, strict=True))
        written = {index: outcome for index, outcome in searched.items() if isinstance(outcome, list)}
        read = [texts[index] for index in written], [sources[index] for index in written]
        outputs = self._outputs(*read, list(written.values()), request)
        failures = {index: outcome for index, outcome in searched.items() if not isinstance(outcome, list)}
        for index, several in zip(written, outputs, strict=True):
            if isinstance(several, TooLittleMemory):
                failures[index] = several
                continue
            best, *others = several
            results[index] = replace(best, alternatives=tuple(others)) if others else best
        for index, failure in failures.items():
            results[index] = explain(failure, len(sources[index]), generation)
        return results

    def _limit(self, source: list[int], generation: GenerationConfig) -> int:
        return self._engine.limit(source, generation.max_extra_length, generation.max_length)

    def _outputs(
        self, texts: list[str], sources: list[list[int]], found: list[list[Hypothesis]], request: TranslationRequest
    ) -> list[list[Translation] | TooLittleMemory]:
        """Each source's outputs, best first, with what follows from their attention."""
        rows = [(text, source) for text, source in zip(texts, sources, strict=True)]
        pairs = [(*row, each) for row, several in zip(rows, found, strict=True) for each in several]
        written = self._target.decode([each.ids for *_, each in pairs])
        # A forced pass costs time: of outputs that nothing is asked about, only those that need it have one.
        seen = [index for index, (*_, each) in enumerate(pairs) if self._is_seen(each, request)]
        looked = self._engine.attention([pairs[at][1] for at in seen], [list(pairs[at][2].ids) for at in seen])
        made: dict[int, Translation | TooLittleMemory] = {}
        for row, weights in looked:  # as they come: those of all texts would take more memory than anything else
            index = seen[row]
            if isinstance(weights, TooLittleMemory):
                made[index] = weights
            else:
                made[index] = self._output(*pairs[index], written[index], weights, request)
        for index, (pair, text) in enumerate(zip(pairs, written, strict=True)):
            if index not in made:
                made[index] = self._output(*pair, text, None, request)
        results: list[list[Translation] | TooLittleMemory] = []
        every = (made[index] for index in range(len(pairs)))
        for several in found:
            outputs = list(islice(every, len(several)))
            failure = next((each for each in outputs if isinstance(each, TooLittleMemory)), None)
            results.append(failure or [each for each in outputs if isinstance(each, Translation)])
        return results

    def _is_seen(self, hypothesis: Hypothesis, request: TranslationRequest) -> bool:
        """Whether something of an output follows from its attention: what is asked for, or its unknown words."""
        return request.attention or request.alignment or self._target.special.unknown in hypothesis.ids

    def _output(
        self,
        source_text: str,
        source: list[int],
        hypothesis: Hypothesis,
        text: str,
        looked: Attention | None,
        request: TranslationRequest,
    ) -> Translation:
        ids, words = hypothesis.ids, None
        copied: list[str] = []
        if looked is not None and self._target.special.unknown in ids:
            copied = request.unknown.choose(self._tokenizers, source_text, ids, looked.aligned)
            (text,) = fill_unknown(self._target, [ids], copied)
        if looked is not None and request.alignment:
            numbers = words_of_tokens(self._source, source_text), words_of_output(self._target, ids, copied)
            words = align(looked.aligned, *numbers) if text.strip() else ()  # white space alone is no word
        return Translation(
            text,
            hypothesis.log_probability,
            hypothesis.score,
            tuple(self._target.tokens(ids)),
            looked.last.numpy() if looked is not None and request.attention else None,
            at_limit=len(ids) + 1 >= self._limit(source, request.generation),
            alignment=words,
        )
