"""What came of a test set, length by length, and what is said of it."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.curves import Panel


@dataclass(frozen=True)
class Tally:
    """What came of the lines whose right answer has ``length`` symbols: all else are sums over these ``lines``.

    ``right`` sums the shares of symbols that stand where they should, of the longer one of output and right answer.
    """

    length: int
    lines: int
    exact: int
    right: float
    written: int  # symbols


Found = dict[str, list[list[Tally]]]  # for each kind of positions, for each seed, the tallies of all lengths
Measure = Callable[[list[Tally]], float]

SHARES: dict[str, Measure] = {
    "exact, %": lambda found: 100 * sum(tally.exact for tally in found) / sum(tally.lines for tally in found),
    "symbols right, %": lambda found: 100 * sum(tally.right for tally in found) / sum(tally.lines for tally in found),
}
MEASURES: dict[str, Measure] = SHARES | {
    "symbols written for each one wanted": lambda found: (
        sum(tally.written for tally in found) / sum(tally.lines * tally.length for tally in found)
    ),
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
            written=sum(len(output) for _, output in pairs),
        )
        for length, pairs in sorted(lines.items())
    ]


def tabulate(task: str, found: Found, ranges: Sequence[tuple[int, int]], trained: int) -> list[str]:
    """A Markdown table for each measure: a row for each kind of positions, a column for each range of lengths."""
    heads = [f"{first}-{last}" if last <= trained else f"{first}-{last} (longer)" for first, last in ranges]
    lines = []
    for name, measure in MEASURES.items():
        lines += ["", f"| {task}: {name} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for positions, seeds in found.items():
            cells = [_cell([measure(_within(tallies, *each)) for tallies in seeds], name) for each in ranges]
            lines.append(f"| {positions} | {' | '.join(cells)} |")
    return lines


def panels(task: str, found: Found, trained: int) -> list[Panel]:
    """A panel for each share, over the lengths one by one."""
    return [
        Panel(
            f"{task}: {name}",
            trained,
            {
                positions: [{tally.length: share([tally]) for tally in tallies} for tallies in seeds]
                for positions, seeds in found.items()
            },
        )
        for name, share in SHARES.items()
    ]


def _share_right(reference: list[str], output: list[str]) -> float:
    same = sum(a == b for a, b in zip(reference, output, strict=False))
    return same / max(len(reference), len(output))


def _within(tallies: list[Tally], first: int, last: int) -> list[Tally]:
    return [tally for tally in tallies if first <= tally.length <= last]


def _cell(values: list[float], measure: str) -> str:
    """The mean over the seeds, the least and the most."""
    digits = 1 if measure.endswith("%") else 2
    mean, least, most = (f"{value:.{digits}f}" for value in (statistics.mean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least}-{most})"
