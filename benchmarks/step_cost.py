"""What a training step costs as the work grows: with the batch, with the sentences' length, with the model.

    python -m benchmarks.step_cost [--quick]

Target tokens a second and the memory of a training, on the CPU, in bfloat16 where ``train.precision = "auto"`` means
that; sentences of one length, so that nothing is padding. Each row is measured in a process of its own, whose memory
no other has touched. Writes benchmarks/results/step_cost.md. Five minutes and 6 GiB of memory on a quiet machine with
two cores; Linux only. ``--quick`` takes two points of each table with a fortieth of their pairs, and few steps.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import table
from benchmarks.peers.batches import fixed_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import describe, make_config
from benchmarks.resident import growth
from transduce.config import TrainConfig
from transduce.kernels import resolve_precision
from transduce.models import build
from transduce.training import make_optimizer, train_step

RESULT: Final = Path(__file__).parent / "results" / "step_cost.md"
CPU: Final = torch.device("cpu")
MIB: Final = 2**20
VOCABULARY: Final = 8_000
ENOUGH: Final = 6.0  # seconds of steps, of which the median one is shown
FEWEST: Final = 3  # steps, however long they take


@dataclass(frozen=True)
class Point:
    """A size of ``benchmarks.peers.sizes``, and a batch of pairs of so many tokens a side."""

    size: str
    pairs: int
    length: int

    @property
    def tokens(self) -> int:
        """Of each side of the batch."""
        return self.pairs * self.length


@dataclass(frozen=True)
class Cost:
    """Seconds of a step, bytes by which the training made the process grow, and what of these every batch needs."""

    seconds: float
    memory: int
    fixed: int


RECIPE: Final = Point("recipe", 160, 25)
# Each table: what grows, and the points it grows through.
TABLES: Final[Mapping[str, tuple[Point, ...]]] = {
    "batch": tuple(replace(RECIPE, pairs=pairs) for pairs in (40, 80, 160, 320, 640, 1000)),
    "length": tuple(Point("recipe", 8192 // length, length) for length in (16, 32, 64, 128, 256, 512, 1024)),
    "model": tuple(replace(RECIPE, size=size) for size in ("tiny", "recipe", "base")),
}
QUICK: Final[Mapping[str, tuple[Point, ...]]] = {
    what: tuple(replace(point, pairs=max(1, point.pairs // 40)) for point in points[:2])
    for what, points in TABLES.items()
}


def measure(point: Point, dtype: torch.dtype, vocabulary: int, enough: float) -> Cost:
    """In a process of its own. The first step, which makes what all later ones use again, is in no time."""
    seconds: list[float] = []
    counts: list[int] = []

    def train() -> None:
        config = TrainConfig()
        model = build(make_config(point.size, vocabulary))
        optimizer = make_optimizer(model, config)
        counts.append(sum(weight.numel() for weight in model.parameters()))
        batches = fixed_corpus(point.pairs, point.length, vocabulary).batches
        while len(seconds) <= FEWEST or sum(seconds[1:]) < enough:
            start = time.perf_counter()
            train_step(model, optimizer, batches, 1e-4, dtype)
            seconds.append(time.perf_counter() - start)

    memory = growth(train)
    # Weights, their gradients and Adam's two moments, in float32.
    return Cost(statistics.median(seconds[1:]), memory, 4 * torch.float32.itemsize * counts[0])


def measure_all(
    tables: Mapping[str, tuple[Point, ...]], dtype: torch.dtype, vocabulary: int, enough: float, start: str = "spawn"
) -> dict[Point, Cost]:
    """Every point once, in whatever tables it stands; processes start as ``multiprocessing`` calls it."""
    found: dict[Point, Cost] = {}
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        for point in dict.fromkeys(point for points in tables.values() for point in points):
            found[point] = processes.submit(measure, point, dtype, vocabulary, enough).result()
            print(f"{point}: {found[point]}", file=sys.stderr)
    return found


def report(tables: Mapping[str, tuple[Point, ...]], found: Mapping[Point, Cost], vocabulary: int) -> list[str]:
    """A table for each thing that grows."""
    lines = []
    for what, points in tables.items():
        rows = [[*_describe(what, point, vocabulary), *_figures(point, found[point])] for point in points]
        head = [*_HEADS[what], "ms a step", "target tokens a second", "memory (MiB)", "of these for the batch"]
        lines += ["", _caption(what, points[0], vocabulary), "", *table(head, rows)]
    return lines


_HEADS: Final = {"batch": ["tokens a side"], "length": ["tokens of a sentence", "pairs"], "model": ["model"]}


def _caption(what: str, first: Point, vocabulary: int) -> str:
    model = f"{first.size} ({describe(make_config(first.size, vocabulary))})"
    match what:
        case "batch":
            return f"The batch grows: {model}, sentences of {first.length} tokens."
        case "length":
            return f"The sentences grow: {model}, batches of {first.tokens:,} tokens a side."
        case _:
            return f"The model grows: batches of {first.tokens:,} tokens a side, sentences of {first.length}."


def _describe(what: str, point: Point, vocabulary: int) -> list[str]:
    match what:
        case "batch":
            return [f"{point.tokens:,}"]
        case "length":
            return [f"{point.length:,}", f"{point.pairs:,}"]
        case _:
            return [f"{point.size}: {describe(make_config(point.size, vocabulary))}"]


def _figures(point: Point, cost: Cost) -> list[str]:
    memory = (cost.memory, cost.memory - cost.fixed)
    return [f"{1e3 * cost.seconds:,.0f}", f"{point.tokens / cost.seconds:,.0f}", *(f"{x / MIB:,.0f}" for x in memory)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="file of the results; with --quick, none where nothing is given")
    options = parser.parse_args()
    tables = QUICK if options.quick else TABLES
    vocabulary, enough = (101, 0.0) if options.quick else (VOCABULARY, ENOUGH)
    dtype = resolve_precision("auto", CPU)  # once: near the limit two processes might choose differently
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; threads: {torch.get_num_threads()}; {dtype}. Vocabulary "
        f"{vocabulary:,}; medians of {enough:.0f} seconds of steps, at least {FEWEST}. Memory is what the training "
        "adds to the process at the most; for the batch is what remains of it without weights, gradients and Adam's "
        "moments.",
        *report(tables, measure_all(tables, dtype, vocabulary, enough), vocabulary),
    ]
    print(*lines, sep="\n")
    out = options.out or (None if options.quick else RESULT)
    if out is not None:
        out.parent.mkdir(exist_ok=True)
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
