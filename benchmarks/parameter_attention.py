"""Attention over parameters in the feed-forward networks' place: time of a training step against base.

    python -m benchmarks.parameter_attention [--rounds N] [--sequences N] [--length N] [--precision P]

The paper's supplementary section: "about 30% longer", 16 hours in place of 12. Models of base's size but for a small
vocabulary, whose projection would hide the difference; their steps alternate. Writes a Markdown table to
benchmarks/results/parameter_attention.md and docs/performance.md. A minute.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import alternate
from transduce.config import TrainConfig, preset
from transduce.data import Batch
from transduce.kernels import resolve_precision
from transduce.models import build
from transduce.training import make_optimizer, train_step

RESULT: Final = Path(__file__).parent / "results" / "parameter_attention.md"

PRESETS: Final = ("base", "aop1", "aop2")
VOCABULARY: Final = 1000


def make_batch(sequences: int, length: int) -> Batch:
    """Random symbols, with no padding."""
    draws = np.random.default_rng(1)
    source, target, labels = (draws.integers(0, VOCABULARY, (sequences, length)) for _ in range(3))
    lengths = np.full(sequences, length)
    return Batch(source, lengths, target, labels, lengths)


def step_of(name: str, batch: Batch, dtype: torch.dtype) -> tuple[Callable[[], object], int]:
    """A training step of the preset of that name, and how many weights its model has."""
    model = build(preset(name, {"vocab_size": VOCABULARY}))
    optimizer = make_optimizer(model, TrainConfig())
    return lambda: train_step(model, optimizer, [batch], 1e-4, dtype), sum(p.numel() for p in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    arguments = parser.parse_args()
    dtype = resolve_precision(arguments.precision, torch.device("cpu"))
    batch = make_batch(arguments.sequences, arguments.length)
    steps = {name: step_of(name, batch, dtype) for name in PRESETS}
    seconds = alternate({name: step for name, (step, _) in steps.items()}, arguments.rounds)
    rows = []
    for name, found in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(found, seconds["base"], strict=True))
        rows.append([name, f"{steps[name][1]:,}", f"{statistics.median(found):.3f}", f"{ratio:.2f}"])
    lines = [
        f"{circumstances()}, {dtype}; {arguments.sequences} sequences of {arguments.length} symbols a side, vocabulary "
        f"{VOCABULARY:,}; median of {arguments.rounds} rounds, alternating",
        "",
        *table(["preset", "weights", "seconds a step", "times base"], rows),
    ]
    insert("performance.md", "parameter attention", lines)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
