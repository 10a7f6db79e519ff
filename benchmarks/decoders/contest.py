"""A contest of engines on one test set: every setting once, then the best ones in turn."""

import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.decoders.engines import Engine
from benchmarks.decoders.process import EngineProcess
from transduce.evaluation import corpus_score
from transduce.text import TokenizerPair

CENTILES: Final = {"p50": 50, "p95": 95}


@final
@dataclass(frozen=True)
class Task:
    """A model and the texts that it translates."""

    name: str
    model: Path
    exported: Path
    sources: list[str]
    references: list[str]


@final
@dataclass(frozen=True)
class Setting:
    """An engine, and how many sentences its batches have at most; ours chooses that itself (0)."""

    engine: Engine
    batch: int

    def __str__(self) -> str:
        threads = f"{self.engine.workers} x {self.engine.threads}"
        return f"{threads}, batch {self.batch}" if self.batch else threads


@final
@dataclass(frozen=True)
class Speed:
    """Sentences a second in each round, the quality of what came out, and its tokens, end symbols counted."""

    setting: Setting
    sentences: list[float]
    bleu: float
    tokens: int = 0

    @property
    def median(self) -> float:
        """Of all rounds."""
        return statistics.median(self.sentences)

    def tokens_a_second(self, lines: int) -> float:
        """Output tokens a second, of so many sentences in a round."""
        return self.median * self.tokens / lines

    def over(self, other: "Speed") -> float:
        """How many times as fast as the other: the median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.sentences, other.sentences, strict=True))


@final
@dataclass(frozen=True)
class Single:
    """What an engine takes for one sentence at a time, in milliseconds, by centile."""

    engine: Engine
    milliseconds: dict[str, float]


@final
@dataclass(frozen=True)
class Cost:
    """What one run of the best setting over all texts costs, in a fresh process."""

    setting: Setting
    load_seconds: float
    peak_bytes: int


@final
@dataclass(frozen=True)
class Section:
    """Everything measured of one model with one beam."""

    name: str
    beam: int
    lines: int
    grid: list[Speed]
    best: list[Speed]
    singles: list[Single]
    costs: list[Cost]


@final
class Contest:
    """The engines' processes for one test set, all at a time."""

    def __init__(self, tests: Task, engines: Iterable[Engine]) -> None:
        self._tests, self._open = tests, ExitStack()
        self._processes = {
            engine: self._open.enter_context(EngineProcess(engine, tests.model, tests.exported)) for engine in engines
        }

    def close(self) -> None:
        """End all processes."""
        self._open.close()

    def race(self, settings: Sequence[Setting], beam: int, rounds: int) -> list[Speed]:
        """All settings in turn in every round, there and back again, so that nobody always follows the same one."""
        found: list[list[float]] = [[] for _ in settings]
        outputs: list[list[str]] = [[] for _ in settings]
        for round_ in range(rounds):
            for place in list(range(len(settings)))[:: -1 if round_ % 2 else 1]:
                setting = settings[place]
                process = self._processes[setting.engine]
                outputs[place], seconds = process.translate(self._tests.sources, beam, setting.batch)
                found[place].append(len(self._tests.sources) / seconds)
                print(f"{setting.engine}, {setting}: {found[place][-1]:.1f} a second", file=sys.stderr)
        count = TokenizerPair.load(self._tests.model).target.encode
        return [
            Speed(
                setting,
                speeds,
                corpus_score("bleu", translations, self._tests.references).value,
                sum(len(ids) + 1 for ids in count(translations)),
            )
            for setting, speeds, translations in zip(settings, found, outputs, strict=True)
        ]

    def warm_up(self, beam: int) -> None:
        """A few sentences for everybody, not counted."""
        for process in self._processes.values():
            process.translate(self._tests.sources[:4], beam, 4)

    def device_bytes(self, engine: Engine) -> int:
        """What an engine has taken of its device's memory so far, its weights included; 0 on a CPU."""
        return self._processes[engine].device_bytes

    def one_by_one(self, engines: Sequence[Engine], beam: int, count: int) -> list[Single]:
        """Every engine translates each of the first texts alone, all of them in turn."""
        seconds: dict[Engine, list[float]] = {engine: [] for engine in engines}
        for text in self._tests.sources[:count]:
            for engine in engines:
                seconds[engine] += self._processes[engine].latencies([text], beam)
        return [Single(engine, _centiles(several)) for engine, several in seconds.items()]


def measure_cost(tests: Task, setting: Setting, beam: int, rounds: int) -> Cost:
    """Load time (the interpreter's start included) as the median of so many processes, and the last one's memory."""
    loads: list[float] = []
    peak = 0
    for _ in range(rounds):
        with EngineProcess(setting.engine, tests.model, tests.exported) as process:
            loads.append(process.load_seconds)
            process.translate(tests.sources, beam, setting.batch)
            peak = process.peak_bytes()
    return Cost(setting, statistics.median(loads), peak)


def fastest(speeds: Iterable[Speed]) -> list[Speed]:
    """Each family's and number format's fastest setting."""
    best: dict[str, Speed] = {}
    for speed in speeds:
        name = str(speed.setting.engine)
        if name not in best or speed.median > best[name].median:
            best[name] = speed
    return list(best.values())


def _centiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {name: 1000 * ordered[round(last * share / 100)] for name, share in CENTILES.items()}
