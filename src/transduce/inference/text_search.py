"""Texts to outputs by a search over their ids: what is asked for in one call, and what becomes of each text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from transduce.config import BadInputError, GenerationConfig, TransduceError
from transduce.data import bare
from transduce.inference.alignment import align, word_numbers
from transduce.inference.encoding import encode_within
from transduce.inference.engine import Attention, Engine
from transduce.inference.requirements import OutputRequirements
from transduce.inference.running import Cancellation
from transduce.inference.translation import EMPTY, Translation, explain
from transduce.search import Constraint, Hypothesis, NothingFound, Prefixes, SearchSettings, TooLittleMemory
from transduce.text import Tokenizer


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
    first: int
    hurry: bool
    cancellation: Cancellation | None


@final
class TextSearch:
    """The engine's search between a tokenizer for each side."""

    def __init__(self, engine: Engine, source: Tokenizer, target: Tokenizer) -> None:
        self._engine, self._source, self._target = engine, source, target

    def translate(self, texts: Sequence[str], request: TranslationRequest) -> list[Translation | TransduceError]:
        """Each text's translation, or why it has none."""
        texts = [bare(text) for text in texts]
        results: list[Translation | TransduceError] = [EMPTY] * len(texts)
        generation, settings, first = request.generation, request.settings, request.first
        # White space alone is never read, and so never too long.
        full = [index for index, text in enumerate(texts) if text.strip()]
        remedy = "split it (--paragraphs, or paragraphs=True)"
        most, longest = generation.max_source_length, self._engine.longest
        encoded = encode_within(self._source, [texts[index] for index in full], most, longest, remedy)
        requirements = request.requirements.constraints(first, self._target)
        prefixes = next((each.ids for each in requirements if isinstance(each, Prefixes)), {})
        sources: dict[int, list[int]] = {}
        for index, ids in zip(full, encoded, strict=True):
            if isinstance(ids, BadInputError):
                results[index] = ids
            elif len(prefixes.get(first + index, ())) >= (limit := self._limit(ids, generation)):
                results[index] = explain(NothingFound(limit), len(ids), generation)
            else:
                sources[index] = ids
        if request.hurry and len(sources) < len(full):
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
        outputs = self._outputs([sources[index] for index in written], list(written.values()), request)
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
        self, sources: list[list[int]], found: list[list[Hypothesis]], request: TranslationRequest
    ) -> list[list[Translation] | TooLittleMemory]:
        """Each source's outputs, best first, with their attention where it is asked for."""
        pairs = [(source, each) for source, several in zip(sources, found, strict=True) for each in several]
        attention: Sequence[Attention | TooLittleMemory | None] = [None] * len(pairs)
        if request.attention or request.alignment:
            attention = self._engine.attention([source for source, _ in pairs], [list(each.ids) for _, each in pairs])
        texts = self._target.decode([each.ids for _, each in pairs])
        every = (
            looked if isinstance(looked, TooLittleMemory) else self._output(*pair, text, looked, request)
            for pair, text, looked in zip(pairs, texts, attention, strict=True)
        )
        results: list[list[Translation] | TooLittleMemory] = []
        for outputs in ([next(every) for _ in several] for several in found):
            written = [each for each in outputs if isinstance(each, Translation)]
            failures = [each for each in outputs if isinstance(each, TooLittleMemory)]
            results.append(failures[0] if failures else written)
        return results

    def _output(
        self,
        source: list[int],
        hypothesis: Hypothesis,
        text: str,
        looked: Attention | None,
        request: TranslationRequest,
    ) -> Translation:
        words = None
        if looked is not None and request.alignment:
            numbers = word_numbers(self._source, source), word_numbers(self._target, hypothesis.ids)
            words = align(looked.aligned, *numbers)
        return Translation(
            text,
            hypothesis.log_probability,
            hypothesis.score,
            tuple(self._target.tokens(hypothesis.ids)),
            looked.last.numpy() if looked is not None and request.attention else None,
            at_limit=len(hypothesis.ids) + 1 >= self._limit(source, request.generation),
            alignment=words,
        )
