"""What all interfaces of a server offer: translations of texts, whoever asks and in whichever form."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

from transduce.serving.languages import Detected, detect
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models
from transduce.serving.process import ModelProcess
from transduce.serving.refusal import BadRequest, TooLarge, TooSlow, Unavailable
from transduce.serving.settings import Limits, ServedModel
from transduce.text import find_gap

AUTO: Final = "auto"
# What a request is told to wait that has waited for a model all the time that it had, in seconds.
_SOON: Final = 10
# Sentences of a streamed text that are translated at the same time.
_AT_ONCE: Final = 64
# Phrases and terms that may be given, for each text that may be.
_PHRASES: Final = 10


@final
@dataclass(frozen=True)
class Job:
    """Texts to be translated, and how.

    ``format`` html leaves tags around what they stood around. ``split`` translates the sentences of a text one by one,
    ``lines`` also what line feeds part. As many ``alternatives`` are given as there are, where a beam has fewer:
    ``strict`` refuses that. ``details`` are the names of what is wanted beside the text; ``settings`` those of
    ``GenerationConfig``; ``requirements`` the prefixes and phrases that ``Translator.translate`` takes, and a glossary.
    Samples follow from the texts' numbers, from ``first_number``.
    """

    texts: Sequence[str]
    source: str
    target: str
    format: str = "text"
    alternatives: int = 0
    strict: bool = False
    split: bool | Literal["lines"] = True
    details: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    requirements: dict[str, Any] = field(default_factory=dict)
    first_number: int = 1


@final
@dataclass(frozen=True)
class Answer:
    """What each text became, by which model; ``detected`` is their language where that was asked for."""

    outputs: list[dict[str, Any]]
    model: ServedModel
    detected: Detected | None = None


@final
class Service:
    """Checks a job, finds its model, waits for its turn, and has it done in the time that it may take."""

    def __init__(self, models: Models, limits: Limits, metrics: Metrics) -> None:
        self.models, self.limits, self._metrics = models, limits, metrics

    def find_deadline(self) -> float:
        """When the time of a request that begins now is up, by the event loop's clock."""
        return asyncio.get_running_loop().time() + self.limits.time

    async def translate(self, job: Job, deadline: float | None = None) -> Answer:
        """Translate a job's texts. ``deadline`` is that of a request of several jobs, None that of one that begins now.

        Raises:
            Refusal: It is not what it may be, there is too much to do, its time is up, or it has failed.
        """
        self._check(job)
        model, detected = self._find(job)
        async with self._process(model, job.texts, deadline) as process:
            outputs = await self._translate(process, job)
        return Answer(outputs, model, detected)

    async def stream(self, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Translate one text sentence by sentence: each with what stands behind it, in order, as soon as it is known.

        Raises:
            Refusal: As ``translate``, before the first sentence or instead of one.
        """
        sentences: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        # A task of its own: whoever reads the sentences may do so in several.
        work = asyncio.create_task(self._translate_sentences(job, sentences.put_nowait))
        work.add_done_callback(lambda _: sentences.put_nowait(None))
        try:
            while (sentence := await sentences.get()) is not None:
                yield sentence
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def ask(self, source: str, target: str, name: str, text: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        """The answer of a pair's model to another call about a text.

        Raises:
            Refusal: As ``translate``.
        """
        self.check([text])
        model, _ = self._find(Job([text], source, target))
        async with self._process(model, [text]) as process:
            return await process.call(name, text=text, **arguments)

    def choices(self) -> dict[str, list[str]]:
        """What the fields of all interfaces that name languages may have."""
        sources = list(self.models.sources)
        targets = list(dict.fromkeys(target for source in sources for target in self.models.targets(source)))
        return {
            "source": [AUTO, *sources],
            "target": targets,
            "source_lang": [each.upper().replace("_", "-") for each in sources],
            "target_lang": [each.upper().replace("_", "-") for each in targets],
        }

    def find_source(self, text: str, target: str) -> str:
        """The code of a text's language, of those that can be translated into a target.

        Raises:
            BadRequest: There is none.
        """
        return detect(text, self.models.sources_of(target)).language

    def detect(self, text: str) -> Detected:
        """The language of a text."""
        return detect(text)

    def check(self, texts: Sequence[str], what: str = "texts", each: int = 1) -> None:
        """See that texts are within the limits of a request, or what is given with them, so many for ``each``.

        Raises:
            TooLarge: There are too many, or too long ones.
        """
        most, characters = each * self.limits.texts, sum(map(len, texts))
        if len(texts) > most:
            raise TooLarge(f"{len(texts):,} {what}: at most {most:,} go in one request")
        if characters > self.limits.characters:
            raise TooLarge(f"{characters:,} characters of {what}: at most {self.limits.characters:,} go in one request")

    def _check(self, job: Job) -> None:
        if job.alternatives > self.limits.alternatives:
            raise BadRequest(f"alternatives {job.alternatives}: at most {self.limits.alternatives} are given")
        self.check(job.texts)
        self.check(list(_strings(job.requirements.values())), "phrases and terms", each=_PHRASES)

    def _find(self, job: Job) -> tuple[ServedModel, Detected | None]:
        """The model for a job, and its language where that was to be told: one for all of its texts."""
        if job.source != AUTO:
            return self.models.find(job.source, job.target), None
        sources = self.models.sources_of(job.target)
        detected = detect(" ".join(job.texts), sources)
        return self.models.find(detected.language, job.target), detected

    @asynccontextmanager
    async def _process(
        self, model: ServedModel, texts: Sequence[str], deadline: float | None = None
    ) -> AsyncIterator[ModelProcess]:
        """The model's process, once there is room for the texts, for as long as a request may take."""
        loaded = False
        until = self.find_deadline() if deadline is None else deadline
        try:
            with self.models.admission(model).admit(sum(map(len, texts))):
                async with asyncio.timeout_at(until), self.models.use(model) as process:
                    loaded = True
                    yield process
        except TimeoutError:
            if not loaded:
                raise Unavailable(f"{model.name} is still being loaded", _SOON) from None
            raise TooSlow(f"not done within {self.limits.time:g} seconds: ask for less at a time") from None

    async def _translate_sentences(self, job: Job, tell: Callable[[dict[str, Any]], None]) -> None:
        self._check(job)
        model, _ = self._find(job)
        (text,) = job.texts
        some = asyncio.Semaphore(_AT_ONCE)

        async def translate(sentence: str, number: int) -> list[dict[str, Any]]:
            async with some:  # each takes the whole glossary along
                alone = replace(job, texts=[sentence], split=False, first_number=number)
                return await self._translate(process, alone)

        async with self._process(model, job.texts) as process:
            parts = await process.call("split", text=text, language=model.language)
            running = [asyncio.create_task(translate(sentence, n)) for n, (sentence, _) in enumerate(parts, 1)]
            try:
                for number, ((sentence, separator), each) in enumerate(zip(parts, running, strict=True), 1):
                    (output,) = await each
                    gap = separator if number == len(parts) else find_gap(sentence, separator, output["text"])
                    tell({"source": sentence, **output, "separator": gap})
            finally:
                for each in running:
                    each.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _translate(self, process: ModelProcess, job: Job) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = await process.call(
            "translate",
            texts=list(job.texts),
            language=process.model.language,
            format=job.format,
            n_best=job.alternatives + 1,
            strict=job.strict,
            split=job.split,
            details=list(job.details),
            settings=job.settings,
            first_number=job.first_number,
            **job.requirements,
        )
        for number, output in enumerate(outputs, 1):
            if "error" in output:
                place = f"text {number:,}: " if len(outputs) > 1 else ""
                raise BadRequest(place + output["error"])
        self._metrics.count_texts(process.model.name, job.texts, outputs)
        return outputs


def _strings(value: object) -> Iterator[str]:
    """All strings in a value of lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.items():
            yield from _strings(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from _strings(each)
