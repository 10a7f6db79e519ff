"""What the paper concludes from Table 3, and whether the trainings here agree, by sign and by spread over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from transduce.lab.figure import Difference, write_difference
from transduce.lab.table3 import Line

Verdict = Literal["holds", "does not", "undecided", "one seed", "not run"]

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
    """A conclusion, the paper's difference to base and ours, and the verdict."""

    conclusion: Conclusion
    paper: float
    ours: Difference | None
    verdict: Verdict


def judge(lines: Sequence[Line]) -> list[Judged]:
    """Every conclusion by the trainings of these lines."""
    rows = {line.row.preset: line for line in lines}
    return [_judge(conclusion, rows[conclusion.preset]) for conclusion in CONCLUSIONS]


def to_markdown(judged: Sequence[Judged]) -> str:
    """All of them as a table."""
    head = ("conclusion", "row", "figure", "paper", "here, 95% interval", "verdict")
    rows = [head, ("---",) * len(head), *map(_cells, judged)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _judge(conclusion: Conclusion, line: Line) -> Judged:
    paper, ours = (line.paper_loss, line.loss) if conclusion.measure == "loss" else (line.paper_bleu, line.bleu)
    return Judged(conclusion, paper, ours, _decide(conclusion, paper, ours))


def _decide(conclusion: Conclusion, paper: float, ours: Difference | None) -> Verdict:
    if ours is None:
        return "not run"
    if ours.interval is None:
        return "one seed"
    if conclusion.alike:
        if abs(ours.mean) + ours.interval < _WORSE:
            return "holds"
        return "does not" if abs(ours.mean) - ours.interval > _WORSE else "undecided"
    if not ours.is_significant:
        return "undecided"
    return "holds" if ours.mean * paper > 0 else "does not"


def _cells(judged: Judged) -> tuple[str, ...]:
    form = "+.3f" if judged.conclusion.measure == "loss" else "+.1f"
    return (
        judged.conclusion.claim,
        judged.conclusion.preset.removeprefix("table3-"),
        "Δ loss" if judged.conclusion.measure == "loss" else "Δ BLEU",
        f"{judged.paper:{form}}",
        write_difference(judged.ours, form),
        judged.verdict,
    )
