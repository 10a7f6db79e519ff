"""What long texts cost: time and memory of the native encoder, in C++, beside the plain one, in PyTorch's operations.

    python -m benchmarks.long_texts

Writes benchmarks/results/long_texts.md and its part of docs/performance.md. One source of n symbols, two layers of base
width; every measurement is in a process of its own, and the ways take turns at each length. Some minutes on two quiet
cores; Linux only.
"""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.resident import growth
from transduce.config import TransformerConfig
from transduce.kernels import Format
from transduce.models import NativeTransformer, Tokens, Transformer

RESULT: Final = Path(__file__).parent / "results" / "long_texts.md"
WAYS: Final[Mapping[str, Format | None]] = {"C++, int8": "int8", "C++, float32": "float32", "PyTorch": None}
LENGTHS: Final = (20, 128, 500, 1000, 2000, 4000, 8000, 16000, 32000)
ALONE: Final = 4000  # the longest that is measured on one core too, and in several rounds
MOST: Final = 16000  # the longest that PyTorch's operations are measured with
VOCABULARY: Final = 1000
ROUNDS: Final = 3  # so that there is a middle one
ENOUGH: Final = 1.0  # seconds of repeating a measurement
FEW: Final = 16  # symbols to warm up with
MIB: Final = 2**20


@dataclass(frozen=True)
class Costs:
    """Median seconds of reading one source, and the bytes by which the process grew in the first time."""

    seconds: float
    memory: int


def measure(way: str, length: int, threads: int) -> Costs:
    """In a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = TransformerConfig(vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=1)
    plain = Transformer(config).eval().requires_grad_(False)
    format_ = WAYS[way]
    model = plain if format_ is None else NativeTransformer(plain, format_)
    ids = torch.randint(VOCABULARY, (1, length))

    @torch.inference_mode()
    def read(symbols: int) -> None:
        model.encode(Tokens(ids[:, :symbols], torch.tensor([symbols])))

    seconds: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        read(length)
        seconds.append(time.perf_counter() - start)

    read(min(length, FEW))
    memory = growth(timed)
    while sum(seconds) < ENOUGH:
        timed()
    return Costs(statistics.median(seconds), memory)


def measure_all(threads: int, lengths: list[int]) -> dict[int, dict[str, Costs]]:
    """The middle round of each way at each length."""
    found: dict[int, dict[str, Costs]] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for length in lengths:
            rounds: dict[str, list[Costs]] = {way: [] for way in WAYS if WAYS[way] is not None or length <= MOST}
            for _ in range(ROUNDS if length <= ALONE else 1):
                for way, costs in rounds.items():
                    costs.append(processes.submit(measure, way, length, threads).result())
            found[length] = {way: sorted(costs, key=_seconds)[len(costs) // 2] for way, costs in rounds.items()}
            print(f"{threads} threads, {length:,} symbols: {found[length]}", file=sys.stderr)
    return found


def _seconds(costs: Costs) -> float:
    return costs.seconds


def rows(found: Mapping[int, Mapping[str, Costs]]) -> list[list[str]]:
    return [
        [
            f"{length:,}",
            *(f"{costs[way].seconds:.3f}" if way in costs else "" for way in WAYS),
            *(
                f"{costs['PyTorch'].seconds / costs[way].seconds:.2f}" if "PyTorch" in costs else ""
                for way in WAYS
                if way != "PyTorch"
            ),
            *(f"{costs[way].memory / MIB:,.0f}" if way in costs else "" for way in WAYS),
        ]
        for length, costs in found.items()
    ]


def main() -> None:
    cores = torch.get_num_threads()
    head = [
        "symbols",
        *(f"{way} (s)" for way in WAYS),
        *(f"PyTorch / {way}" for way in WAYS if way != "PyTorch"),
        *(f"{way} (MiB)" for way in WAYS),
    ]
    lines = [f"{circumstances()}; two layers of base width, one source; medians.", ""]
    for threads in dict.fromkeys((cores, 1)):
        found = measure_all(threads, [length for length in LENGTHS if threads > 1 or length <= ALONE])
        lines += [f"Threads: {threads}", "", *table(head, rows(found)), ""]
    RESULT.write_text("\n".join(lines), encoding="utf-8")
    insert("performance.md", "long texts", lines[:-1])


if __name__ == "__main__":
    main()
