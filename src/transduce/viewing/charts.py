"""Line charts over optimizer steps as SVG: each point says what it is, and all of them stand in a table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from transduce.viewing.page import escape
from transduce.viewing.scales import Scale, brief, make_scale

Point = tuple[int, float]  # a step, and what was measured there

_WIDTH, _HEIGHT = 400, 210  # of a chart, in its own units; a page makes it as wide as there is room
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 386, 10, 186  # of what is drawn
_MOST: Final = 160  # points of a series that are drawn
_FEW: Final = 30  # points that can be told apart, and get a mark each
_LARGEST: Final = 1e100  # beyond it, a value is as good as infinite


@final
@dataclass(frozen=True)
class Series:
    """What was measured, by step; infinite and NaN values leave a gap. There are four styles, from 0."""

    name: str
    points: Sequence[Point]
    style: int = 0


@final
@dataclass(frozen=True)
class Chart:
    """Some series of one unit; those without points are left out.

    ``show`` is a value for people. A ratio's scale begins ``from_zero``, and is ``logarithmic`` where that is wanted
    and the values differ enough; that of counts has ``whole`` numbers. ``best`` is the point that is pointed out.
    """

    title: str
    unit: str
    series: Sequence[Series]
    show: Callable[[float], str]
    from_zero: bool = False
    logarithmic: bool = False
    whole: bool = False
    best: Point | None = None


def draw_chart(chart: Chart, last: int) -> str:
    """A figure of HTML: the chart from step 0 to the ``last``, and its table; nothing where nothing was measured."""
    chart, notes = _thin_out(replace(chart, series=[each for each in chart.series if each.points]))
    if not chart.series:
        return ""
    values = [value for each in chart.series for _, value in each.points if _is_drawable(value)]
    drawing = ""
    if values:
        scale = make_scale(values, from_zero=chart.from_zero, logarithmic=chart.logarithmic, whole=chart.whole)
        chart = replace(chart, unit=f"{chart.unit}, logarithmic" if scale.logarithmic else chart.unit)
        drawing = _draw(chart, scale, last)
    parts = [
        f"<figcaption><h3>{escape(chart.title)}</h3>",
        f'<span class="faint">{escape(chart.unit)}</span>{_legend(chart.series)}</figcaption>',
        drawing,
        f'<p class="readout" aria-hidden="true">{escape(_last(chart))}</p>',
        *(f'<p class="faint">{note}</p>' for note in notes),
        _table(chart),
    ]
    return f'<figure class="chart">{"".join(parts)}</figure>'


def thin(points: Sequence[Point], most: int = _MOST) -> list[Point]:
    """At most about so many points: the first, the last, and of each stretch between the lowest and the highest.

    So no leap is lost. Of values that are infinite or NaN, the first of a stretch stays.
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        finite = sorted((index for index in stretch if _is_drawable(points[index][1])), key=lambda at: points[at][1])
        others = [index for index in stretch if not _is_drawable(points[index][1])]
        kept.update(finite[:1], finite[-1:], others[:1])
    return [points[index] for index in sorted(kept)]


def _is_drawable(value: float) -> bool:
    return abs(value) <= _LARGEST  # which is not true of NaN


def _thin_out(chart: Chart) -> tuple[Chart, list[str]]:
    """The chart with as many points as are drawn, and what is to be said of the others."""
    thinned = replace(chart, series=[replace(each, points=thin(each.points)) for each in chart.series])
    before, after = (sum(len(each.points) for each in one.series) for one in (chart, thinned))
    notes = []
    if after < before:
        notes.append(f"{after:,} of {before:,} points: of each stretch of steps the lowest and the highest.")
    if not all(_is_drawable(value) for each in chart.series for _, value in each.points):
        notes.append("Values that are infinite or NaN leave a gap.")
    return thinned, notes


def _draw(chart: Chart, scale: Scale, last: int) -> str:
    def x(step: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * step / max(1, last), 1)

    def y(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * scale.place(value), 1)

    parts = [
        f'<path class="grid" d="M{_LEFT} {y(tick)}H{_RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{brief(tick)}</text>'
        for tick in scale.ticks
    ]
    steps = [tick for tick in make_scale([0, max(1, last)], whole=True).ticks if tick <= max(1, last)]
    parts += [f'<text x="{x(tick)}" y="{_HEIGHT - 5}" text-anchor="middle">{brief(tick)}</text>' for tick in steps]
    for each in chart.series:
        points = [(step, value) for step, value in each.points if _is_drawable(value)]
        kind = ' class="mark"' if len(each.points) <= _FEW else ""
        parts.append(f'<g class="series s{each.style}" data-name="{escape(each.name)}">')
        parts.append(f'<path class="line" d="{_line(each.points, x, y)}"/>')
        parts += [
            f'<circle{kind} cx="{x(step)}" cy="{y(value)}" r="3" data-step="{step}" data-value="{chart.show(value)}">'
            f"<title>{escape(each.name)}, step {step:,}: {chart.show(value)}</title></circle>"
            for step, value in points
        ]
        parts.append("</g>")
    if chart.best is not None:
        parts.append(f'<circle class="best" cx="{x(chart.best[0])}" cy="{y(chart.best[1])}" r="6"/>')
    label = escape(f"{chart.title}, {chart.unit}, over optimizer steps. {_summary(chart)}")
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _line(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """The path through the points, drawn anew behind each gap."""
    path, pen = [], "M"
    for step, value in points:
        if _is_drawable(value):
            path.append(f"{pen}{x(step)} {y(value)}")
        pen = "L" if _is_drawable(value) else "M"
    return "".join(path)


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    names = (f'<span class="key s{each.style}">{escape(each.name)}</span>' for each in series)
    return f'<span class="legend">{"".join(names)}</span>'


def _summary(chart: Chart) -> str:
    said = []
    for each in chart.series:
        finite = [(step, value) for step, value in each.points if _is_drawable(value)]
        ends = [f"{chart.show(value)} at step {step:,}" for step, value in (*finite[:1], *finite[1:][-1:])]
        said.append(f"{each.name}: {' to '.join(ends) or 'no finite value'}")
    return "; ".join(said)


def _last(chart: Chart) -> str:
    """What was measured at the last step."""
    step = max(each.points[-1][0] for each in chart.series)
    ends = ((each.name, each.points[-1]) for each in chart.series)
    return f"step {step:,}: {'; '.join(f'{name} {chart.show(value)}' for name, (at, value) in ends if at == step)}"


def _table(chart: Chart) -> str:
    columns = [dict(each.points) for each in chart.series]
    heads = "".join(f'<th scope="col">{escape(each.name)}</th>' for each in chart.series)
    rows = []
    for step in sorted(set().union(*columns)):
        cells = (f"<td>{chart.show(column[step]) if step in column else ''}</td>" for column in columns)
        rows.append(f'<tr><th scope="row">{step:,}</th>{"".join(cells)}</tr>')
    title, unit = escape(chart.title), escape(chart.unit)
    return (
        f'<details><summary>{title} as a table</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{title} as a table"><table><caption class="hidden">{title}, {unit}</caption>'
        f'<thead><tr><th scope="col">step</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )
