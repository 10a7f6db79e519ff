"""Table 3 beside its scaled-down reproduction: means over seeds, their spreads, and the differences to base."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from transduce.config import VARIATIONS, ModelConfig, NormPosition, Table3Row, scale_preset, scale_steps
from transduce.lab.figure import Deviation, Difference, Figure
from transduce.lab.measurement import Measurement

_BASE: Final = VARIATIONS[0]
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
_PARAMETER_ATTENTION: Final = {
    "parameter_heads": "h_p",
    "parameter_d_k": "d_pk",
    "parameter_d_v": "d_pv",
    "parameter_keys": "n_p",
}


@final
@dataclass(frozen=True)
class Scores:
    """What a row's trainings come to on dev."""

    perplexity: Figure
    bleu: Figure


@final
@dataclass(frozen=True)
class Line:
    """A row of the paper, what became of it here, and both rows' differences to their base.

    Dev loss is the logarithm of perplexity, in nats per token: its differences compare at every size.
    """

    row: Table3Row
    model: ModelConfig
    steps: int
    runs: tuple[Measurement, ...]
    ours: Scores | None
    loss: Difference | None
    bleu: Difference | None
    paper_loss: float
    paper_bleu: float


def make_lines(steps: int, find: Callable[[str], Sequence[Measurement]], norm: NormPosition = "post") -> list[Line]:
    """All rows of the table, base having so many steps; ``find`` gives a row's finished trainings."""
    runs = {row.preset: tuple(find(row.preset)) for row in VARIATIONS}
    losses, bleus = _compare(runs, lambda run: math.log(run.perplexity)), _compare(runs, lambda run: run.bleu)
    return [
        Line(
            row=row,
            model=scale_preset(row.preset, norm=norm),
            steps=scale_steps(row.preset, steps),
            runs=runs[row.preset],
            ours=_score(runs[row.preset]),
            loss=losses.get(row.preset),
            bleu=bleus.get(row.preset),
            paper_loss=math.log(row.perplexity / _BASE.perplexity),
            paper_bleu=row.bleu - _BASE.bleu,
        )
        for row in VARIATIONS
    ]


def describe(model: ModelConfig, base: ModelConfig) -> str:
    """What a model changes of base, in the paper's symbols; of base itself, all that Table 3 varies."""
    values = {symbol: (getattr(model, field), getattr(base, field)) for field, symbol in _SYMBOLS.items()}
    changed = {symbol: (value, old) for symbol, (value, old) in values.items() if value != old}
    described = [f"{symbol} {value}" for symbol, (value, _) in (changed or values).items()]
    if getattr(model, "feed_forward", None) == "parameter_attention":
        described = [f"{symbol} {getattr(model, field)}" for field, symbol in _PARAMETER_ATTENTION.items()]
    return ", ".join(described)


def _score(runs: Sequence[Measurement]) -> Scores | None:
    if not runs:
        return None
    return Scores(Figure.of([run.perplexity for run in runs]), Figure.of([run.bleu for run in runs]))


def _compare(runs: Mapping[str, Sequence[Measurement]], value: Callable[[Measurement], float]) -> dict[str, Difference]:
    """The differences to base of all rows that have trainings, where base has some."""
    values = {name: list(map(value, each)) for name, each in runs.items() if each}
    base = values.pop(_BASE.preset, None)
    if base is None:
        return {}
    deviation = Deviation.of([base, *values.values()])
    return {name: deviation.compare(each, base) for name, each in values.items()}
