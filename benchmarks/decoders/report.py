"""The figures of a decoding contest as Markdown."""

from collections.abc import Sequence
from typing import Final

from benchmarks.decoders.contest import CENTILES, Section, Speed
from benchmarks.page import table

_MEGABYTE: Final = 1_000_000


def show(sections: Sequence[Section]) -> list[str]:
    """Each section's best settings, latencies and costs, and its grid."""
    parts = (_show_best, _show_singles, _show_grid)
    return [line for section in sections for part in parts for line in part(section)]


def _show_best(section: Section) -> list[str]:
    ours = best_of(section, "transduce")
    costs = {str(cost.setting.engine): cost for cost in section.costs}
    rows = [
        [
            str(speed.setting.engine),
            str(speed.setting),
            f"{speed.median:.1f}",
            f"{ours.over(speed):.2f}",
            f"{speed.bleu:.2f}",
            f"{costs[str(speed.setting.engine)].load_seconds:.1f}",
            f"{costs[str(speed.setting.engine)].peak_bytes / _MEGABYTE:,.0f}",
        ]
        for speed in section.best
    ]
    head = [
        "",
        "workers x threads",
        "sentences a second",
        "our best is faster by",
        "BLEU",
        "load, s",
        "memory, MB",
    ]
    return [f"## {section.name}, beam {section.beam}, {section.lines:,} lines", "", *table(head, rows), ""]


def _show_singles(section: Section) -> list[str]:
    rows = [
        [
            f"{one.engine}, {one.engine.workers} x {one.engine.threads}",
            *(f"{one.milliseconds[name]:.1f}" for name in CENTILES),
        ]
        for one in section.singles
    ]
    return ["One sentence at a time:", "", *table(["", *(f"{name}, ms" for name in CENTILES)], rows), ""]


def _show_grid(section: Section) -> list[str]:
    rows = [
        [str(each.setting.engine), str(each.setting), f"{each.median:.1f}", f"{each.bleu:.2f}"] for each in section.grid
    ]
    return ["Every setting, once:", "", *table(["", "workers x threads", "sentences a second", "BLEU"], rows), ""]


def best_of(section: Section, family: str) -> Speed:
    """The fastest of a family's number formats."""
    return max((each for each in section.best if each.setting.engine.family == family), key=lambda each: each.median)
