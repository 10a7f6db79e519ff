"""The differences of Table 3's rows to base as a picture, the paper's beside ours. Needs the extra ``plot``."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from transduce.config import PRESETS, VARIATIONS
from transduce.lab.figure import Difference
from transduce.lab.table3 import Line, describe

# Okabe and Ito's colours, which colour-blind readers tell apart; the markers differ too.
_PAPER: Final = "#D55E00"
_OURS: Final = "#0072B2"
_APART: Final = 0.16  # of a row's height, so that no marker hides another


def draw(lines: Sequence[Line], path: Path) -> None:
    """Write a picture of two panels, dev loss and BLEU: in each line a row of the table, the paper's and ours."""
    rows = [line for line in lines if line.row is not VARIATIONS[0]]
    canvas = Canvas(figsize=(11, 7.5), layout="constrained")
    left, right = canvas.subplots(1, 2, sharey=True)
    _draw_panel(left, [line.paper_loss for line in rows], [line.loss for line in rows])
    _draw_panel(right, [line.paper_bleu for line in rows], [line.bleu for line in rows])
    left.set_xlabel("Δ loss (ln PPL), nats per token: left is better")
    right.set_xlabel("Δ BLEU: right is better")
    left.set_yticks(range(len(rows)), [_name(line) for line in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    canvas.suptitle("Table 3, dev: differences to base")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    canvas.savefig(path, dpi=150)


def _draw_panel(axes: Axes, paper: Sequence[float], ours: Sequence[Difference | None]) -> None:
    for row in range(0, len(paper), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="black", alpha=0.05, linewidth=0)
    axes.axvline(0, color="grey", linewidth=1)
    axes.plot(paper, [row - _APART for row in range(len(paper))], "o", color=_PAPER, label="paper, one training each")
    run = [(row + _APART, difference) for row, difference in enumerate(ours) if difference is not None]
    axes.errorbar(
        [difference.mean for _, difference in run],
        [height for height, _ in run],
        xerr=[math.nan if difference.interval is None else difference.interval for _, difference in run],
        fmt="s",
        color=_OURS,
        capsize=3,
        label="here, with 95% intervals",
    )
    axes.tick_params(axis="y", length=0)


def _name(line: Line) -> str:
    part = f"{line.row.part} " if line.row.part.startswith("(") else f"{line.row.part}: "
    changes = describe(PRESETS[line.row.preset], PRESETS["base"])
    return part + changes + ("" if line.ours else " (not run)")
