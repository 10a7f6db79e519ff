"""What the paper concludes from Table 3, and whether the trainings here agree, by sign and by spread over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal, final

from transduce.lab.table3 import Line

Verdict = Literal["holds", "does not", "undecided", "one seed", "not run"]

# Student's t of 1, 2, ... degrees of freedom, within which it is 95 times of 100; of more than 30 as of 30.
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
# A row is like base where it differs by less than what the paper calls worse, of one head (section 6.2).
_WORSE: Final = 0.9  # BLEU


@final
@dataclass(frozen=True)
class Conclusion:
    """What the paper says of a row beside base, and the figure that says it: which sign, its own table has.

    ``alike`` is a row that the paper finds no different.
    """

    claim: str
    preset: str
    measure: Literal["loss", "bleu"]
    alike: bool = False


CONCLUSIONS: Final = (
    Conclusion("one head is worse (6.2)", "table3-a-h1", "bleu"),
    Conclusion("too many heads are worse (6.2)", "table3-a-h32", "bleu"),
    Conclusion("a smaller d_k hurts (6.2)", "table3-b-dk16", "loss"),
    Conclusion("a smaller d_k hurts (6.2)", "table3-b-dk32", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-n2", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-n4", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-n8", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-d256", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-d1024", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-ff1024", "loss"),
    Conclusion("bigger models are better (6.2)", "table3-c-ff4096", "loss"),
    Conclusion("bigger models are better (6.2)", "big", "loss"),
    Conclusion("dropout helps against over-fitting (6.2)", "table3-d-drop0.0", "loss"),
    Conclusion("label smoothing hurts perplexity (5.4)", "table3-d-ls0.0", "loss"),
    Conclusion("label smoothing improves BLEU (5.4)", "table3-d-ls0.0", "bleu"),
    Conclusion("learned positions are nearly identical (6.2)", "table3-e", "bleu", alike=True),
    Conclusion("8 heads over parameters are slightly worse (supplement)", "aop1", "bleu"),
    Conclusion("16 heads over parameters are slightly better (supplement)", "aop2", "bleu"),
)


@final
@dataclass(frozen=True)
class Judged:
    """A conclusion, the paper's difference to base and ours, and the verdict.

    ``interval`` is half of ours' 95% confidence interval. None: not known.
    """

    conclusion: Conclusion
    paper: float
    ours: float | None
    interval: float | None
    verdict: Verdict


def judge(lines: Sequence[Line]) -> list[Judged]:
    """Every conclusion by the trainings of these lines, the first of which is base's.

    What one training's figure varies by is taken to be the same for all rows, for each of them has few seeds: s^2 is
    the mean of their variances, weighted by their degrees of freedom, and the standard error of a difference s sqrt(1/n
    + 1/n_base) for n seeds. Its 95% interval is as many of them to either side as Student's t says for all degrees of
    freedom together: 12.7 where two seeds of one row are all there is.
    """
    rows = {line.row.preset: line for line in lines}
    return [_judge(conclusion, rows, lines[0]) for conclusion in CONCLUSIONS]


def to_markdown(judged: Sequence[Judged]) -> str:
    """All of them as a table."""
    head = ("conclusion", "row", "figure", "paper", "here, 95% interval", "verdict")
    rows = [head, ("---",) * len(head), *map(_cells, judged)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _judge(conclusion: Conclusion, rows: Mapping[str, Line], base: Line) -> Judged:
    line = rows[conclusion.preset]
    paper = line.paper_loss if conclusion.measure == "loss" else line.paper_bleu
    ours = _values(line, conclusion.measure)
    bases = _values(base, conclusion.measure)
    if not ours or not bases:
        return Judged(conclusion, paper, None, None, "not run")
    difference = fmean(ours) - fmean(bases)
    deviation, degrees = _pool_deviations([_values(each, conclusion.measure) for each in rows.values()])
    if not degrees:
        return Judged(conclusion, paper, difference, None, "one seed")
    surely = _STUDENT[min(degrees, len(_STUDENT)) - 1]
    interval = surely * deviation * math.sqrt(1 / len(ours) + 1 / len(bases))
    return Judged(conclusion, paper, difference, interval, _decide(conclusion, paper, difference, interval))


def _decide(conclusion: Conclusion, paper: float, difference: float, interval: float) -> Verdict:
    if conclusion.alike:
        if abs(difference) + interval < _WORSE:
            return "holds"
        return "does not" if abs(difference) - interval > _WORSE else "undecided"
    if not abs(difference) > interval:  # an infinite one is: it diverged, where base did not
        return "undecided"
    return "holds" if difference * paper > 0 else "does not"


def _values(line: Line, measure: Literal["loss", "bleu"]) -> list[float]:
    return [math.log(run.perplexity) if measure == "loss" else run.bleu for run in line.runs]


def _pool_deviations(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation within groups of a common one, and its degrees of freedom: 0 where none has two values."""
    squares, degrees = 0.0, 0
    for group in groups:
        if len(group) > 1 and all(map(math.isfinite, group)):
            mean = fmean(group)
            squares += math.fsum((value - mean) ** 2 for value in group)
            degrees += len(group) - 1
    return math.sqrt(squares / max(1, degrees)), degrees


def _cells(judged: Judged) -> tuple[str, ...]:
    form = "+.3f" if judged.conclusion.measure == "loss" else "+.1f"
    ours = "" if judged.ours is None else f"{judged.ours:{form}}"
    interval = "" if judged.interval is None else f" ± {judged.interval:{form.lstrip('+')}}"
    name = "Δ loss" if judged.conclusion.measure == "loss" else "Δ BLEU"
    return (
        judged.conclusion.claim,
        judged.conclusion.preset.removeprefix("table3-"),
        name,
        f"{judged.paper:{form}}",
        ours + interval,
        judged.verdict,
    )
