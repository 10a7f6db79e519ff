"""Curves over the lengths of sequences, several panels in one figure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from benchmarks.drawing import figure, label, style

Points = dict[int, float]  # length to percent

_WIDTH, _HEIGHT = 640, 400  # of a panel, in pixels


@dataclass(frozen=True)
class Panel:
    """One plot: for each name, the points of each seed; lengths up to ``trained`` were trained on."""

    title: str
    trained: int
    seeds: dict[str, list[Points]]


def draw(name: str, rows: Sequence[Sequence[Panel]]) -> None:
    """Draw rows of panels: lines are means over the seeds, areas reach from the least to the most."""
    panels = [panel for row in rows for panel in row]
    # The same name is drawn alike in every panel, whichever others are beside it.
    names = [*dict.fromkeys(name for panel in panels for name in panel.seeds)]
    with figure(name, _WIDTH * len(rows[0]), _HEIGHT * len(rows)) as drawn:
        grid = drawn.subplots(len(rows), len(rows[0]), squeeze=False, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=True):
            _draw_panel(axes, panel, names)
        beside = 3 * len(rows[0])
        drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=beside)


def _draw_panel(axes: Axes, panel: Panel, names: list[str]) -> None:
    for name, seeds in panel.seeds.items():
        look = style(names.index(name))
        lengths = sorted(seeds[0])
        columns = [[points[length] for points in seeds] for length in lengths]
        axes.plot(lengths, [statistics.mean(column) for column in columns], marker=".", label=name, **look)
        axes.fill_between(lengths, [*map(min, columns)], [*map(max, columns)], color=look["color"], alpha=0.15, lw=0)
    axes.axvspan(0, panel.trained + 0.5, color="black", alpha=0.06, lw=0)
    axes.annotate("trained on", (panel.trained, 50), (-4, 0), textcoords="offset points", ha="right", color="#555555")
    axes.set(xlim=(0, None), ylim=(-3, 103))
    label(axes, panel.title, "symbols of the right answer", "%")
