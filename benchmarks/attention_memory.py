"""Memory and time of attention on long sequences: plain, in chunks, and within a local window.

    python -m benchmarks.attention_memory

Writes benchmarks/results/attention_memory.md, its part of docs/performance.md and docs/figures/attention-memory.png
(extra ``plot``). One head of width 64, float32, one thread, each measurement in a process of its own. Three minutes and
4 GiB of memory on a quiet machine; Linux only. Where chunks begin to pay in time, ``benchmarks.chunk_limit`` asks.
"""

import multiprocessing
import statistics
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from benchmarks import drawing
from benchmarks.live_bytes import LiveBytes
from benchmarks.page import circumstances, insert, table
from benchmarks.powers import exponent
from benchmarks.resident import growth
from benchmarks.rounds import timed
from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.local import attend_locally
from transduce.kernels.mask import Mask
from transduce.kernels.scores import PRODUCT, attend_plainly

RESULT: Final = Path(__file__).parent / "results" / "attention_memory.md"

LENGTHS: Final = (1000, 2000, 4000, 8000, 16000, 32000)
WIDTH: Final = 64
NEIGHBOURHOOD: Final = 64  # r
FEW: Final = 128  # positions to warm up with
ENOUGH: Final = 1.5  # seconds of repeating a measurement
MOST: Final = 2**30  # bytes of one matrix of weights, of which plain attention holds three at a time
TAIL: Final = 3  # how many of the largest sizes an exponent is fitted to
MIB: Final = 2**20

BEYOND: Final = "of these beyond output and gradients (MiB)"
# The exponents of each column.
THEORY: Final = {"plain": "2222", "in chunks": ("1", "1", "1/2", "2"), "restricted": "1111"}

Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend_plainly(query, key, value, None, None, PRODUCT)


def in_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend_in_chunks(query, key, value, Mask())


def nearby(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend_locally(query, key, value, Mask(window=NEIGHBOURHOOD // 2), PRODUCT)


WAYS: Final[Mapping[str, Way]] = {"plain": plain, "in chunks": in_chunks, "restricted": nearby}


@dataclass(frozen=True)
class Costs:
    """What forward and backward take: bytes by which the process grew, bytes of live tensors, seconds."""

    resident: int
    live: int
    seconds: float


def run(way: Way, length: int) -> Callable[[], tuple[Tensor, ...]]:
    """A call of forward and backward, which returns the output and the gradients of all three inputs."""
    inputs = [torch.randn(1, 1, length, WIDTH).div_(WIDTH**0.5).requires_grad_() for _ in range(3)]
    gradient = torch.randn(1, 1, length, WIDTH)

    def once() -> tuple[Tensor, ...]:
        result = way(*inputs)
        return result, *torch.autograd.grad(result, inputs, gradient)

    return once


def measure(name: str, length: int) -> Costs:
    """In a process of its own: nobody else's memory is in the figures."""
    torch.set_num_threads(1)
    run(WAYS[name], FEW)()
    once = run(WAYS[name], length)
    resident = growth(once)
    seconds = [timed(once)]
    while sum(seconds) < ENOUGH:
        seconds.append(timed(once))
    with LiveBytes() as count:
        once()
    return Costs(resident, count.peak, statistics.median(seconds))


def results(length: int) -> int:
    """Bytes of the output and of the inputs' gradients: what every way has to make."""
    return 4 * length * WIDTH * torch.float32.itemsize


def measure_all() -> dict[str, dict[int, Costs]]:
    found: dict[str, dict[int, Costs]] = {name: {} for name in WAYS}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for name in WAYS:
            for length in LENGTHS:
                if name != "plain" or length**2 * torch.float32.itemsize <= MOST:
                    found[name][length] = processes.submit(measure, name, length).result()
                    print(f"{name}, {length:,} positions: {found[name][length]}", file=sys.stderr)
    return found


def columns(way: Mapping[int, Costs]) -> dict[str, dict[int, float]]:
    """What is shown of a way's costs: the column's name to length to figure."""
    return {
        "process grew by (MiB)": {n: costs.resident / MIB for n, costs in way.items()},
        "live tensors (MiB)": {n: costs.live / MIB for n, costs in way.items()},
        BEYOND: {n: (costs.live - results(n)) / MIB for n, costs in way.items()},
        "seconds": {n: costs.seconds for n, costs in way.items()},
    }


def report(found: Mapping[str, Mapping[int, Costs]]) -> list[str]:
    rows = []
    for name, way in found.items():
        shown = columns(way)
        rows += [[name, f"{n:,}", *(f"{column[n]:,.3f}" for column in shown.values())] for n in way]
        fitted = [f"**{exponent(column, TAIL):.2f}**" for column in shown.values()]
        rows += [[name, f"exponent, n ≥ {list(way)[-TAIL]:,}", *fitted], [name, "theory", *THEORY[name]]]
    return table(["attention", "n", *shown], rows)


def draw(found: Mapping[str, Mapping[int, Costs]]) -> None:
    with drawing.figure("attention-memory", 1200, 560) as figure:
        memory, time_ = figure.subplots(1, 2)
        for number, (name, way) in enumerate(found.items()):
            style = {"marker": "o", "label": name, **drawing.style(number)}
            for axes, column in ((memory, BEYOND), (time_, "seconds")):
                axes.plot(*zip(*columns(way)[column].items(), strict=True), **style)
        for axes in (memory, time_):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
        drawing.label(memory, "memory beyond inputs, output and gradients", "positions n", "MiB")
        drawing.label(time_, "time of forward and backward", "positions n", "seconds")
        figure.legend(*memory.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def main() -> None:
    torch.set_num_threads(1)
    found = measure_all()
    lines = [
        f"{circumstances()}; one head of width {WIDTH}, float32, r = {NEIGHBOURHOOD}; forward and backward; inputs and "
        "the output's gradient exist before and are in no figure; median seconds of the processor's work.",
        "",
        *report(found),
    ]
    insert("performance.md", "attention memory", lines)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
