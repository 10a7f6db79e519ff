"""BLEU by the length of the source, of every system: as a picture. Needs the extra ``plot``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from transduce.lab.table2 import Budget, Line

# Okabe and Ito's colours, which colour-blind readers tell apart; the markers differ too. There
# are nine of these: of as many as there are colours, both would begin again at the same system.
_COLOURS: Final = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_MARKERS: Final = "osD^vP*Xp"


def draw(lines: Mapping[Budget, Sequence[Line]], path: Path) -> None:
    """Write a picture of a panel for each budget: a curve for each system, with its spread over seeds."""
    canvas = Canvas(figsize=(11, 5), layout="constrained")
    panels = canvas.subplots(1, len(lines), sharey=True)
    for axes, (equal, rows) in zip(panels, lines.items(), strict=True):
        _draw_panel(axes, rows)
        axes.set_title(f"at equal {equal}")
        axes.set_xlabel("words of the source (sentences of dev)")
    panels[0].set_ylabel("BLEU: up is better")
    handles, labels = panels[0].get_legend_handles_labels()
    if labels:
        canvas.legend(handles, labels, loc="outside lower center", ncols=4)
    canvas.savefig(path, dpi=150)


def _draw_panel(axes: Axes, lines: Sequence[Line]) -> None:
    """Groups stand side by side, whatever lengths are in them."""
    for number, line in enumerate(lines):
        if not (groups := line.groups):
            continue
        colour, marker = look(number)
        axes.errorbar(
            range(len(groups)),
            [group.bleu.mean for group in groups],
            yerr=[group.bleu.spread or 0 for group in groups],
            color=colour,
            marker=marker,
            capsize=3,
            label=line.system.name,
        )
        axes.set_xticks(range(len(groups)), [f"{group.name}\n({group.sentences:,})" for group in groups])


def look(number: int) -> tuple[str, str]:
    """The colour and the marker of a system, by its number."""
    return _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
