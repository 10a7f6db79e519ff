"""The reproduced Table 3 for people (Markdown and, with the extra ``plot``, a picture) and for programs (JSON)."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from transduce.config import PRESETS, VARIATIONS, RunConfig, TrainConfig, scale_preset, scale_steps
from transduce.config.disk import write_whole
from transduce.lab.figure import write_difference, write_figure
from transduce.lab.measurement import describe_trainings, read_measurements
from transduce.lab.table3 import Line, describe, make_lines
from transduce.lab.table3_conclusions import judge
from transduce.lab.table3_conclusions import to_markdown as conclusions_to_markdown

Draw = Callable[[Sequence[Line], Path], None]

PAGE: Final = "table3.md"
_DATA: Final = "table3.json"
_PLOT: Final = "table3.png"
_COLUMNS: Final = (
    *("row", "paper", "here", "seeds", "params ×10⁶", "PPL", "Δ loss", "BLEU", "Δ BLEU"),
    *("paper: params ×10⁶", "PPL", "Δ loss", "BLEU", "Δ BLEU"),
)


def import_draw() -> Draw | None:
    """What draws the picture, or None where matplotlib is not installed."""
    try:
        from transduce.lab.table3_plot import draw  # noqa: PLC0415 - matplotlib is an extra
    except ImportError:
        return None
    return draw


def write_table3(out: Path, config: RunConfig, draw: Draw | None) -> None:
    """Write what all finished trainings of the folder come to; ``config`` is base's."""
    assert config.model.architecture == "transformer"
    lines = make_lines(config.train.max_steps, lambda name: read_measurements(out, name), config.model.norm)
    settings = config.model_dump(
        exclude={"model": {"vocab_size", "source_vocab_size"}, "train": {"max_minutes", "seed"}}
    )
    conclusions = [
        vars(each) | {"conclusion": vars(each.conclusion), "ours": each.ours and vars(each.ours)}
        for each in judge(lines)
    ]
    data = {"settings": settings, "rows": to_data(lines), "conclusions": conclusions}
    write_whole(out / _DATA, json.dumps(data, indent=2) + "\n")
    write_whole(out / PAGE, to_markdown(lines, _about(config, lines)))
    if draw:
        draw(lines, out / _PLOT)


def to_markdown(lines: Sequence[Line], about: Sequence[str]) -> str:
    """The page: the lines about the trainings, the table, and how to read it."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_cells, lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    conclusions = ["## What the paper concludes", conclusions_to_markdown(judge(lines)), _VERDICTS]
    return "\n\n".join(["# Table 3, scaled down", *about, table, _NOTES, *conclusions]) + "\n"


def to_data(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The same for programs, with every single training."""
    return [
        {
            "row": line.row.preset,
            "part": line.row.part,
            "model": line.model.model_dump(exclude={"vocab_size", "source_vocab_size"}),
            "steps": line.steps,
            "perplexity": line.ours and vars(line.ours.perplexity),
            "bleu": line.ours and vars(line.ours.bleu),
            "loss_difference": line.loss and vars(line.loss),
            "bleu_difference": line.bleu and vars(line.bleu),
            "paper": {
                "perplexity": line.row.perplexity,
                "bleu": line.row.bleu,
                "millions": line.row.millions,
                "loss_difference": line.paper_loss,
                "bleu_difference": line.paper_bleu,
            },
            "runs": [run.model_dump() for run in line.runs],
        }
        for line in lines
    ]


def _cells(line: Line) -> tuple[str, ...]:
    row, is_base = line.row, line.row is VARIATIONS[0]
    steps = TrainConfig().max_steps
    longer = scale_steps(row.preset, steps) != steps
    paper = describe(PRESETS[row.preset], PRESETS["base"])
    here = describe(line.model, scale_preset("base"))
    ours = ("not run", *("",) * 5)
    if line.ours:
        ours = (
            str(len(line.runs)),
            f"{line.runs[0].parameters / 1e6:.2f}",
            write_figure(line.ours.perplexity, ".2f"),
            write_difference(line.loss, "+.3f"),
            write_figure(line.ours.bleu, ".1f"),
            write_difference(line.bleu, "+.1f"),
        )
    return (
        row.part,
        paper + (f", {scale_steps(row.preset, steps):,} steps" if longer else ""),
        here + (f", {line.steps:,} steps" if longer else ""),
        *ours,
        str(row.millions or ""),
        f"{row.perplexity:.2f}",
        "" if is_base else f"{line.paper_loss:+.3f}",
        f"{row.bleu:.1f}",
        "" if is_base else f"{line.paper_bleu:+.1f}",
    )


def _about(config: RunConfig, lines: Sequence[Line]) -> list[str]:
    train, generation = config.train, config.generation
    corpus = config.data.train[0]
    runs = [run for line in lines for run in line.runs]
    pre = config.model.architecture == "transformer" and config.model.norm == "pre"
    norm = ", all rows with the norm in front of the sub-layers, which is not the paper's" if pre else ""
    about = [
        f"`{config.data.root}`, {corpus.source} to {corpus.target}. Base is the preset `tiny`{norm}. A training has "
        f"{train.max_steps:,} steps of at most {train.batch_tokens:,} tokens a side, {train.warmup_steps:,} of them "
        f"warm-up, a rate factor of {train.learning_rate_factor:.3f}, and a rate that falls to nothing over the last "
        f"{train.cooldown_steps:,}. "
        f"Beam {generation.beam_size}, length penalty {generation.length_penalty}."
    ]
    if runs:
        about.append(describe_trainings(runs))
    return about


_NOTES: Final = """\
"paper" and "here" are what a row changes of base, there and at this size. The paper's figures are of one training each,
on newstest2013. PPL is perplexity per token, the end symbol counted; it and BLEU (by beam search) are dev's, of the
weights after the last step. A figure is the mean over the seeds ± their sample standard deviation; one seed has none.
Δ is the difference to base: Δ loss of ln PPL, in nats per token (less is better), Δ BLEU of BLEU; its ± is half of its
95% interval, and it is bold where that does not reach zero. The interval is s sqrt(1/n + 1/n_base) to either side for n
seeds, as often as Student's t says, s^2 being the variance over seeds of all rows together: it is wide where few rows
have two seeds."""

_VERDICTS: Final = """\
"holds": the difference to base has the paper's sign, and its 95% interval does not reach zero; "does not": the other
sign, likewise; "undecided": neither. A row that is "nearly identical" there "holds" where the whole interval is within
0.9 BLEU, which the paper calls worse (of one head), and "does not" where all of it is beyond."""
