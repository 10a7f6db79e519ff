"""What came of a test set, length by length, and what is said of it."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.curves import Panel
from benchmarks.page import table


@dataclass(frozen=True)
class Tally:
    """What came of the lines whose right answer has ``length`` symbols: all else are sums over these ``lines``.

    ``right`` sums the shares of symbols that stand where they should, of the longer one of output and right answer.
    ``cut`` counts the outputs that are the right answer's beginning and no more.
    """

    length: int
    lines: int
    exact: int
    right: float
    cut: int


Found = dict[str, list[list[Tally]]]  # for each kind of positions, for each seed, the tallies of all lengths

MEASURES: dict[str, Callable[[Tally], float]] = {
    "exact": lambda tally: tally.exact,
    "symbols right": lambda tally: tally.right,
    "right but cut short": lambda tally: tally.cut,
}


def count(references: Sequence[str], outputs: Sequence[str]) -> list[Tally]:
    """A tally for each length of a reference, the shortest first."""
    lines = defaultdict(list)
    for reference, output in zip(references, outputs, strict=True):
        lines[len(reference.split())].append((reference.split(), output.split()))
    return [
        Tally(
            length,
            len(pairs),
            exact=sum(reference == output for reference, output in pairs),
            right=sum(_share_right(reference, output) for reference, output in pairs),
            cut=sum(output == reference[: len(output)] for reference, output in pairs if len(output) < len(reference)),
        )
        for length, pairs in sorted(lines.items())
    ]


def tabulate(measure: str, task: str, found: Found, ranges: Sequence[tuple[int, int]], trained: int) -> list[str]:
    """A Markdown table: a row for each kind of positions, a column for each range of lengths."""
    heads = [f"{first}-{last}" if last <= trained else f"{first}-{last} (longer)" for first, last in ranges]
    rows = [
        [positions, *(_cell([_percent(_within(each, *ends), MEASURES[measure]) for each in seeds]) for ends in ranges)]
        for positions, seeds in found.items()
    ]
    return table([f"{task}: {measure}, %", *heads], rows)


def panels(task: str, found: Found, trained: int) -> list[Panel]:
    """A panel for each measure, over the lengths one by one."""
    return [
        Panel(
            f"{task}: {name}",
            trained,
            {
                positions: [{tally.length: _percent([tally], measure) for tally in tallies} for tallies in seeds]
                for positions, seeds in found.items()
            },
        )
        for name, measure in MEASURES.items()
    ]


def _share_right(reference: list[str], output: list[str]) -> float:
    same = sum(a == b for a, b in zip(reference, output, strict=False))
    return same / max(len(reference), len(output))


def _percent(tallies: list[Tally], measure: Callable[[Tally], float]) -> float:
    return 100 * sum(map(measure, tallies)) / sum(tally.lines for tally in tallies)


def _within(tallies: list[Tally], first: int, last: int) -> list[Tally]:
    return [tally for tally in tallies if first <= tally.length <= last]


def _cell(values: list[float]) -> str:
    """The mean over the seeds, the least and the most."""
    mean, least, most = (f"{value:.1f}" for value in (statistics.mean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least}-{most})"
