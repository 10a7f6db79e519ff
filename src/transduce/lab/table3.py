"""Table 3 beside its scaled-down reproduction: means over seeds, their spreads, and the differences to base."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from transduce.config import VARIATIONS, ModelConfig, NormPosition, Table3Row, scale_preset, scale_steps
from transduce.lab.figure import Figure
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


def make_lines(steps: int, find: Callable[[str], Sequence[Measurement]], norm: NormPosition = "post") -> list[Line]:
    """All rows of the table, base having so many steps; ``find`` gives a row's finished trainings."""
    base_scores = _score(find(_BASE.preset))
    return [_line(row, scale_preset(row.preset, norm=norm), steps, find(row.preset), base_scores) for row in VARIATIONS]


def describe(model: ModelConfig, base: ModelConfig) -> str:
    """What a model changes of base, in the paper's symbols; of base itself, all that Table 3 varies."""
    values = {symbol: (getattr(model, field), getattr(base, field)) for field, symbol in _SYMBOLS.items()}
    changed = {symbol: (value, old) for symbol, (value, old) in values.items() if value != old}
    described = [f"{symbol} {value}" for symbol, (value, _) in (changed or values).items()]
    if getattr(model, "feed_forward", None) == "parameter_attention":
        described = [f"{symbol} {getattr(model, field)}" for field, symbol in _PARAMETER_ATTENTION.items()]
    return ", ".join(described)


def _score(runs: Sequence[Measurement]) -> Scores | None:
    return Scores.of([(run.perplexity, run.bleu) for run in runs]) if runs else None


def _line(
    row: Table3Row, model: ModelConfig, steps: int, runs: Sequence[Measurement], base_scores: Scores | None
) -> Line:
    ours, loss, bleu = _score(runs), None, None
    if ours and base_scores and row is not _BASE:
        loss, bleu = ours.loss.minus(base_scores.loss), ours.bleu.minus(base_scores.bleu)
    return Line(
        row=row,
        model=model,
        steps=scale_steps(row.preset, steps),
        runs=tuple(runs),
        ours=ours,
        loss=loss,
        bleu=bleu,
        paper_loss=math.log(row.perplexity / _BASE.perplexity),
        paper_bleu=row.bleu - _BASE.bleu,
    )
