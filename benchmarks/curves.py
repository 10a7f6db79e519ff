"""Curves over lengths of sequences, several panels in one picture. Needs the extra ``plot``."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Points = dict[int, float]  # length to percent

# Told apart by people who see colours differently (Okabe and Ito 2008), and in print by their markers.
_STYLES = (("#0072B2", "o"), ("#56B4E9", "s"), ("#D55E00", "^"), ("#009E73", "D"), ("#777777", "v"))


@dataclass(frozen=True)
class Panel:
    """One plot: for each name, the points of each seed; lengths up to ``trained`` were trained on."""

    title: str
    trained: int
    seeds: dict[str, list[Points]]


def draw(rows: Sequence[Sequence[Panel]], path: Path) -> None:
    """Write the panels as a picture: lines are means over the seeds, areas reach from the least to the most."""
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.4 * len(rows[0]), 3.1 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(rows[0]), squeeze=False, sharey=True)
        panels = [panel for row in rows for panel in row]
        # The same name is drawn alike in every panel, whichever others are beside it.
        styles = dict(zip(dict.fromkeys(name for panel in panels for name in panel.seeds), _STYLES, strict=False))
        for axes, panel in zip(grid.flat, panels, strict=True):
            _draw_panel(axes, panel, styles)
        for axes in grid[-1]:
            axes.set_xlabel("symbols of the right answer")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=3 * len(rows[0]), frameon=False, title="positions"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)


def _draw_panel(axes: Axes, panel: Panel, styles: dict[str, tuple[str, str]]) -> None:
    for name, seeds in panel.seeds.items():
        colour, marker = styles[name]
        lengths = sorted(seeds[0])
        columns = [[points[length] for points in seeds] for length in lengths]
        axes.plot(
            lengths,
            [statistics.mean(column) for column in columns],
            color=colour,
            marker=marker,
            ms=3,
            lw=1.3,
            label=name,
        )
        axes.fill_between(lengths, [*map(min, columns)], [*map(max, columns)], color=colour, alpha=0.15, lw=0)
    axes.axvspan(0, panel.trained + 0.5, color="black", alpha=0.05, lw=0)
    axes.annotate("trained on", (panel.trained, 0), (-4, 4), textcoords="offset points", ha="right", color="#555555")
    axes.set(title=panel.title, xlim=(0, None), ylim=(-3, 103), ylabel="%")
