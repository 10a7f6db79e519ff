"""How many weights it takes for attention in chunks to be faster than plain attention.

    python -m benchmarks.chunk_limit [--rounds N] [--threads N [N ...]]

Forward and backward with eight heads of width 64, alternating. Writes a Markdown table, which
``_WEIGHTS`` of transduce.kernels.attention follows from, to benchmarks/results/chunk_limit.md and docs/performance.md.
Two minutes and 4 GiB of memory on a quiet machine.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import alternate
from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.mask import Mask
from transduce.kernels.scores import PRODUCT, attend_plainly

RESULT: Final = Path(__file__).parent / "results" / "chunk_limit.md"

# Sequences and their length: as in training, then a single long one.
SHAPES: Final = ((64, 128), (16, 512), (1, 512), (1, 1024), (1, 2048), (1, 4096), (1, 8192))
HEADS, WIDTH = 8, 64
HEAD: Final = ["threads", "format", "sequences", "n", "weights", "plain (ms)", "in chunks (ms)", "chunks are faster by"]
MOST: Final = 2**30  # bytes of one matrix of weights, of which plain attention holds three at a time


def ways(sequences: int, length: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Calls of forward and backward."""
    shape = sequences, HEADS, length, WIDTH
    inputs = [(torch.randn(shape) / WIDTH**0.25).to(dtype).requires_grad_() for _ in range(3)]
    gradient = torch.randn(shape).to(dtype)
    query, key, value = inputs
    return {
        "plain": lambda: torch.autograd.grad(attend_plainly(query, key, value, None, None, PRODUCT), inputs, gradient),
        "in chunks": lambda: torch.autograd.grad(attend_in_chunks(query, key, value, Mask()), inputs, gradient),
    }


def compare(sequences: int, length: int, dtype: torch.dtype, rounds: int) -> list[str]:
    """The median milliseconds of both ways, and the median of the rounds' ratios."""
    plain, chunked = alternate(ways(sequences, length, dtype), rounds).values()
    ratio = statistics.median(a / b for a, b in zip(plain, chunked, strict=True))
    return [*(f"{statistics.median(found) * 1e3:,.1f}" for found in (plain, chunked)), f"{ratio:.2f}"]


def measure(threads: int, rounds: int) -> list[list[str]]:
    """The rows of the table with so many threads."""
    torch.set_num_threads(threads)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for sequences, length in SHAPES:
            weights = sequences * HEADS * length**2
            if weights * dtype.itemsize <= MOST:
                size = [f"{sequences}", f"{length:,}", f"2^{weights.bit_length() - 1}"]
                found = compare(sequences, length, dtype, rounds)
                rows.append([f"{threads}", str(dtype).removeprefix("torch."), *size, *found])
                print(*rows[-1], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    arguments = parser.parse_args()
    lines = [
        f"{circumstances()} (or threads as the table says); {HEADS} heads of width {WIDTH}; forward and backward, "
        f"median of {arguments.rounds} rounds, alternating; milliseconds of the processor's work with 1 thread, of a "
        "clock with more",
        "",
        *table(HEAD, [row for threads in arguments.threads for row in measure(threads, arguments.rounds)]),
    ]
    insert("performance.md", "chunk limit", lines)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
