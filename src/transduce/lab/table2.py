"""The systems side by side: what their trainings come to, at equal parameters and at equal time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final, get_args

from transduce.config import SYSTEMS, TABLE2, System, Table2Row
from transduce.lab.figure import Deviation, Difference, Figure
from transduce.lab.measurement import Measurement

Budget = Literal["parameters", "time"]  # what all systems have the same of

_REFERENCE: Final = SYSTEMS[0]


@final
@dataclass(frozen=True)
class Group:
    """BLEU of sources with ``first`` to ``last`` words (None: however many); so many sentences of dev."""

    first: int
    last: int | None
    sentences: int
    bleu: Figure

    @property
    def name(self) -> str:
        """The words, for people."""
        return f"{self.first} to {self.last}" if self.last is not None else f"{self.first} and more"


@final
@dataclass(frozen=True)
class Line:
    """A system, the paper's row of its architecture, and its trainings; ``bleu_difference`` is to the Transformer."""

    system: System
    row: Table2Row | None
    runs: tuple[Measurement, ...]
    bleu_difference: Difference | None

    def figure(self, value: Callable[[Measurement], float | None]) -> Figure | None:
        """Of a value of each training; None where no training has it."""
        return _figure(self.runs, value)

    def clock_figure(self, value: Callable[[Measurement], float | None]) -> Figure | None:
        """Of what a clock measured: where some trainings ran alone, of these, as in company all are slower."""
        return _figure([run for run in self.runs if run.jobs == 1] or self.runs, value)

    @property
    def perplexity(self) -> Figure | None:
        """Of dev, per token."""
        return self.figure(lambda run: run.perplexity)

    @property
    def bleu(self) -> Figure | None:
        """Of dev, by beam search."""
        return self.figure(lambda run: run.bleu)

    @property
    def training_speed(self) -> Figure | None:
        """Target tokens a second."""
        return self.clock_figure(lambda run: run.target_tokens / run.seconds if run.seconds else None)

    @property
    def groups(self) -> list[Group]:
        """BLEU by the length of the source."""
        scores = [score for run in self.runs for score in run.by_length]
        keys = dict.fromkeys((score.first, score.last, score.sentences) for score in scores)
        return [
            Group(*key, Figure.of([each.bleu for each in scores if (each.first, each.last, each.sentences) == key]))
            for key in keys
        ]


def _figure(runs: Sequence[Measurement], value: Callable[[Measurement], float | None]) -> Figure | None:
    found = [each for each in map(value, runs) if each is not None]
    return Figure.of(found) if found else None


def run_name(system: System, equal: Budget) -> str:
    """What the run directories of its trainings are called before their seeds; the Transformer's are in both tables."""
    return system.name if equal == "parameters" or system is _REFERENCE else f"{system.name}-time"


def make_lines(equal: Budget, find: Callable[[str], Sequence[Measurement]]) -> list[Line]:
    """All systems; ``find`` gives the finished trainings of a name.

    What a training varies by with its seed is taken from both tables, which are of the same systems on the same text:
    of one alone too little may be known.
    """
    rows = {row.system: row for row in TABLE2}
    trained = [(system, tuple(find(run_name(system, equal)))) for system in SYSTEMS]
    names = dict.fromkeys(run_name(system, budget) for budget in get_args(Budget) for system in SYSTEMS)
    deviation = Deviation.of([run.bleu for run in find(name)] for name in names)
    bleus = {system.name: [run.bleu for run in runs] for system, runs in trained}
    reference = bleus[_REFERENCE.name]
    lines = []
    for system, runs in trained:
        difference = None
        if runs and reference and system is not _REFERENCE:
            difference = deviation.compare(bleus[system.name], reference)
        lines.append(Line(system, rows[system.stands_for] if system.stands_for else None, runs, difference))
    return lines
