"""Table 3 beside its scaled-down reproduction: means over seeds, their spreads, and the differences to base."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, final

from transduce.config import TABLE3, ModelConfig, Table3Row, scale_preset, scale_steps
from transduce.lab.measurement import Measurement

_SYMBOLS: Final = {
    "encoder_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
    "positions": "positions",
}


@final
@dataclass(frozen=True)
class Figure:
    """A mean over seeds and their sample standard deviation, which one seed does not have."""

    mean: float
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Of one value or more."""
        mean = fmean(values)
        if len(values) < 2:
            return cls(mean, None)
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))

    def minus(self, other: "Figure") -> "Figure":
        """The difference of the means, and what the difference of one training of each spreads by."""
        known = self.spread is not None and other.spread is not None
        return Figure(self.mean - other.mean, math.hypot(self.spread or 0, other.spread or 0) if known else None)


@final
@dataclass(frozen=True)
class Scores:
    """Dev loss is the logarithm of perplexity, in nats per token: its differences compare at every size."""

    perplexity: Figure
    loss: Figure
    bleu: Figure

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> "Scores":
        """Of trainings, each as perplexity and BLEU."""
        perplexities, bleus = zip(*pairs, strict=True)
        return cls(Figure.of(perplexities), Figure.of([math.log(each) for each in perplexities]), Figure.of(bleus))


@final
@dataclass(frozen=True)
class Line:
    """A row of the paper, what became of it here, and both rows' differences to their base."""

    row: Table3Row
    model: ModelConfig
    steps: int
    runs: tuple[Measurement, ...]
    ours: Scores | None
    loss: Figure | None
    bleu: Figure | None
    paper_loss: float
    paper_bleu: float


def make_lines(steps: int, find: Callable[[str], Sequence[Measurement]]) -> list[Line]:
    """All rows of the table, base having so many steps; ``find`` gives a row's finished trainings."""
    base, base_runs = TABLE3[0], find(TABLE3[0].preset)
    base_scores = _score(base_runs)
    return [_line(row, steps, find(row.preset), base, base_scores) for row in TABLE3]


def describe(model: ModelConfig, base: ModelConfig) -> str:
    """What a model changes of base, in the paper's symbols; of base itself, all that Table 3 varies."""
    values = {symbol: (getattr(model, field), getattr(base, field)) for field, symbol in _SYMBOLS.items()}
    changed = {symbol: (value, old) for symbol, (value, old) in values.items() if value != old}
    return ", ".join(f"{symbol} {value}" for symbol, (value, _) in (changed or values).items())


def _score(runs: Sequence[Measurement]) -> Scores | None:
    return Scores.of([(run.perplexity, run.bleu) for run in runs]) if runs else None


def _line(row: Table3Row, steps: int, runs: Sequence[Measurement], base: Table3Row, base_scores: Scores | None) -> Line:
    ours, loss, bleu = _score(runs), None, None
    if ours and base_scores and row is not base:
        loss, bleu = ours.loss.minus(base_scores.loss), ours.bleu.minus(base_scores.bleu)
    return Line(
        row=row,
        model=scale_preset(row.preset),
        steps=scale_steps(row.preset, steps),
        runs=tuple(runs),
        ours=ours,
        loss=loss,
        bleu=bleu,
        paper_loss=math.log(row.perplexity / base.perplexity),
        paper_bleu=row.bleu - base.bleu,
    )
