"""The reproduced Table 2 for people (Markdown and, with the extra ``plot``, a picture) and for programs (JSON)."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from transduce.config import TABLE2, RunConfig
from transduce.config.disk import write_whole
from transduce.lab.figure import Figure, write_difference, write_figure
from transduce.lab.measurement import describe_trainings, read_measurements
from transduce.lab.table2 import Budget, Line, make_lines

Lines = Mapping[Budget, Sequence[Line]]
Draw = Callable[[Lines, Path], None]

PAGE: Final = "table2.md"
_DATA: Final = "table2.json"
_PLOT: Final = "table2.png"
_COLUMNS: Final = (
    *("system", "for the paper's", "seeds", "params ×10⁶", "steps", "minutes", "tokens/s", "FLOPs, by time"),
    *("FLOPs, counted", "PPL", "BLEU", "Δ BLEU", "decoding: sentences/s", "tokens/s", "in"),
)
_PAPER_COLUMNS: Final = ("system", "BLEU EN-DE", "EN-FR", "FLOPs EN-DE", "EN-FR", "here", "BLEU at equal parameters")
_BUDGETS: Final[tuple[Budget, ...]] = ("parameters", "time")


def import_draw() -> Draw | None:
    """What draws the picture, or None where matplotlib is not installed."""
    try:
        from transduce.lab.table2_plot import draw  # noqa: PLC0415 - matplotlib is an extra
    except ImportError:
        return None
    return draw


def write_table2(out: Path, config: RunConfig, draw: Draw | None) -> None:
    """Write what all finished trainings of the folder come to; ``config`` is the Transformer's."""
    lines = {equal: make_lines(equal, lambda name: read_measurements(out, name)) for equal in _BUDGETS}
    if _find_beside_others(lines["parameters"]) and not any(line.runs for line in lines["time"][1:]):
        lines["time"] = []  # the Transformer would stand there alone
    settings = config.model_dump(
        exclude={"model": {"vocab_size", "source_vocab_size"}, "train": {"max_minutes", "seed"}}
    )
    data = {"settings": settings} | {f"equal_{equal}": to_data(rows) for equal, rows in lines.items()}
    write_whole(out / _DATA, json.dumps(data, indent=2) + "\n")
    write_whole(out / PAGE, to_markdown(lines, _about(config, lines)))
    if draw:
        draw(lines, out / _PLOT)


def to_markdown(lines: Lines, about: Sequence[str]) -> str:
    """The page: the lines about the trainings, a table for each budget, BLEU by length, and the paper's table."""
    parts = ["# Table 2, scaled down", *about]
    beside_others = _find_beside_others(lines["parameters"])
    for equal, rows in lines.items():
        parts.append(f"## At equal {equal}")
        if equal == "time" and beside_others:
            parts.append(f"{_NO_CLOCK} {', '.join(beside_others)}.")
        if rows:
            parts.append(_table(_COLUMNS, map(_cells, rows)))
    parts += [_NOTES, "## BLEU by the length of the source", *(_by_length(equal, lines[equal]) for equal in lines)]
    parts += ["## The paper's Table 2", _table(_PAPER_COLUMNS, _paper_rows(lines["parameters"])), _PAPER_NOTES]
    return "\n\n".join(parts) + "\n"


def _find_beside_others(lines: Sequence[Line]) -> list[str]:
    """Systems whose first seed ran beside other trainings: its clock tells nothing of how fast the system is."""
    return [line.system.name for line in lines if any(run.seed == 1 and run.jobs > 1 for run in line.runs)]


def to_data(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The same for programs, with every single training."""
    return [
        {
            "system": line.system.name,
            "stands_for": line.system.stands_for,
            "perplexity": line.perplexity and vars(line.perplexity),
            "bleu": line.bleu and vars(line.bleu),
            "bleu_difference": line.bleu_difference and vars(line.bleu_difference),
            "by_length": [vars(group) | {"bleu": vars(group.bleu)} for group in line.groups],
            "paper": line.row and vars(line.row),
            "runs": [run.model_dump() for run in line.runs],
        }
        for line in lines
    ]


def _table(head: Sequence[str], rows: Any) -> str:  # noqa: ANN401 - an iterable of rows of any kind of sequence
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _cells(line: Line) -> tuple[str, ...]:
    names = (line.system.name, line.system.stands_for or "")
    if not line.runs:
        return (*names, "not run", *("",) * (len(_COLUMNS) - 3))
    return (
        *names,
        str(len(line.runs)),
        f"{line.runs[0].parameters / 1e6:.2f}",
        _mean(line.figure(lambda run: run.steps), ",.0f"),
        _mean(line.clock_figure(lambda run: run.seconds / 60), ",.1f"),
        _mean(line.training_speed, ",.0f"),
        _flops(line.clock_figure(lambda run: run.flops_by_time)),
        _flops(line.figure(lambda run: run.flops_counted)),
        write_figure(line.perplexity, ".2f"),
        write_figure(line.bleu, ".1f"),
        write_difference(line.bleu_difference, "+.1f"),
        _mean(line.clock_figure(lambda run: run.decoded_sentences), ",.0f"),
        _mean(line.clock_figure(lambda run: run.decoded_tokens), ",.0f"),
        ", ".join(dict.fromkeys(run.decoding_precision for run in line.runs if run.decoding_precision)),
    )


def _mean(figure: Figure | None, form: str) -> str:
    return f"{figure.mean:{form}}" if figure else ""


def _flops(figure: Figure | None) -> str:
    return _mean(figure, ".1e").replace("e+", "e")


def _by_length(equal: Budget, lines: Sequence[Line]) -> str:
    run = [line for line in lines if line.groups]
    if not run:
        return f"At equal {equal}: not run."
    groups = run[0].groups
    head = [f"equal {equal}: words of the source", *(group.name for group in groups)]
    sentences = ["sentences of dev", *(f"{group.sentences:,}" for group in groups)]
    return _table(head, [sentences, *([line.system.name, *_bleus(line)] for line in run)])


def _bleus(line: Line) -> list[str]:
    return [write_figure(group.bleu, ".1f") for group in line.groups]


def _paper_rows(lines: Sequence[Line]) -> list[list[str]]:
    here = {line.system.stands_for: line for line in lines}
    return [
        [
            row.system,
            *("" if value is None else f"{value}" for value in (row.bleu_de, row.bleu_fr)),
            *("" if value is None else f"{value:.1e}".replace("e+", "e") for value in (row.flops_de, row.flops_fr)),
            here[row.system].system.name if row.system in here else "",
            (write_figure(here[row.system].bleu, ".1f") or "not run") if row.system in here else "",
        ]
        for row in TABLE2
    ]


def _about(config: RunConfig, lines: Lines) -> list[str]:
    train, generation, corpus = config.train, config.generation, config.data.train[0]
    about = [
        f"`{config.data.root}`, {corpus.source} to {corpus.target}. At equal parameters a training has "
        f"{train.max_steps:,} steps of at most {train.batch_tokens:,} tokens a side, {train.warmup_steps:,} of them "
        f"warm-up, and a rate that falls to nothing over the last 55%; each system has the size, vocabulary included, "
        f"that comes nearest to the Transformer's. At equal time it has as many steps as it takes in the Transformer's "
        f"time, by the clocks of the first seeds. Beam {generation.beam_size}, length penalty "
        f"{generation.length_penalty}.",
        "\n".join(f"- **{line.system.name}**: {line.system.meaning}" for line in lines["parameters"]),
    ]
    # The Transformer's trainings are in both tables.
    again = [run for line in lines["time"] for run in line.runs if line is not lines["time"][0]]
    runs = [run for line in lines["parameters"] for run in line.runs] + again
    if runs:
        about.append(describe_trainings(runs))
    return about


_NO_CLOCK: Final = """\
Equal time needs the clocks of first seeds that ran alone. Beside other trainings (`--jobs`), so with equal parameters
only, ran those of"""
_NOTES: Final = """\
PPL is perplexity per token, the end symbol counted; it and BLEU (by beam search) are dev's, of the weights after the
last step. A figure is the mean over the seeds ± their sample standard deviation; one seed has none. Δ BLEU is the
difference to the Transformer; its ± is half of its 95% interval, and it is bold where that does not reach zero. The
interval is s sqrt(1/n + 1/n_Transformer) to either side for n seeds, as often as Student's t says, s^2 being the
variance over seeds of all systems of both tables together: it is wide where few have two seeds. tokens/s are target
tokens of training. FLOPs are of one training: by the paper's method, its seconds times what the device sustained in
square products when it was measured, and counted, the matrix products of its pairs. Decoding is of dev as a whole,
each system as this library runs it where no number format is named: "in" says in which, for PPL and BLEU, too. Where
some trainings of a system ran alone and others in company (`--jobs`), what a clock measured is the mean of the
former."""
_PAPER_NOTES: Final = """\
The paper's BLEU is of newstest2014 and its trainings are of millions of pairs: only differences within a column
compare."""
