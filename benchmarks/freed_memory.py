"""What it gains that a training keeps the memory of its steps, and that few sizes recur: processes by turns.

    python -m benchmarks.freed_memory [--data DIR] [--sizes recipe,tiny] [--processes N] [--steps N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. Prints a Markdown table of target
tokens a second, of pages that the system had to hand out and of how large a process became, and writes it to
benchmarks/results/freed_memory.md.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Final
from unittest.mock import patch

import torch

from benchmarks.peers.batches import real_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import make_config, parse_sizes
from benchmarks.resident import resident_bytes
from transduce.config import TrainConfig
from transduce.kernels import keep_freed_memory, resolve_precision
from transduce.models import build
from transduce.training import make_optimizer, train_step

RESULT: Final = Path(__file__).parent / "results" / "freed_memory.md"
CPU: Final = torch.device("cpu")
VOCABULARY: Final = 8_000
# How each kind of process treats memory; the last one is as shipped.
KINDS: Final = {
    "returned": "glibc's own way",
    "kept": "kept",
    "filled": "kept, and fillers (as shipped)",
}


def measure(options: argparse.Namespace) -> tuple[float, float, float]:
    """Target tokens a second, pages handed out in a step, and the most mebibytes of this process."""
    corpus = real_corpus(options.data and Path(options.data), options.batch_tokens, VOCABULARY)
    model = build(make_config(options.sizes[0], corpus.vocab_size))
    optimizer, dtype = make_optimizer(model, TrainConfig()), resolve_precision("auto", CPU)
    for batch in corpus.take(0, options.warm_up):
        train_step(model, optimizer, [batch], 1e-4, dtype)
    batches = corpus.take(options.warm_up, options.steps)
    pages, start = _pages(), time.perf_counter()
    for batch in batches:
        train_step(model, optimizer, [batch], 1e-4, dtype)
    seconds = time.perf_counter() - start
    tokens, largest = sum(batch.target_tokens for batch in batches), resident_bytes("VmHWM") / 2**20
    return tokens / seconds, (_pages() - pages) / options.steps, largest


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def ask(options: argparse.Namespace, size: str, kind: str) -> tuple[float, float, float]:
    """The same of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.freed_memory", "--child", kind, "--sizes", size]
    for name in ("steps", "warm_up", "batch_tokens"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    command += ["--data", options.data] if options.data else []
    speed, pages, largest = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return speed, pages, largest


def compare(options: argparse.Namespace, size: str) -> list[str]:
    """A size's rows of the table."""
    turns = [{kind: ask(options, size, kind) for kind in KINDS} for _ in range(options.processes)]
    rows = []
    for kind, name in KINDS.items():
        speed, pages, largest = (statistics.median(turn[kind][place] for turn in turns) for place in range(3))
        gain = statistics.median(turn[kind][0] / turn["returned"][0] for turn in turns)
        rows.append(f"| {size} | {name} | {speed:,.0f} | {pages:,.0f} | {largest:,.0f} | {gain:.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--sizes", type=parse_sizes, default=["recipe", "tiny"])
    parser.add_argument("--processes", type=int, default=7, help="of each kind")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=40, help="steps: a heap takes long to grow to its size")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child != "returned":
            keep_freed_memory()
        whole = patch("transduce.training.step.fill_up", lambda batch: batch)
        with nullcontext() if options.child == "filled" else whole:
            print(json.dumps(measure(options)))
        return
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; threads: {torch.get_num_threads()}. "
        f"Medians of {options.processes} processes of each kind, by turns: {options.steps} steps behind "
        f"{options.warm_up} others, batches of {options.batch_tokens:,} tokens a side.",
        "",
        "| model | freed memory | target tokens a second | pages handed out in a step | MiB at most | faster by |",
        "|---|---|---|---|---|---|",
        *(row for size in options.sizes for row in compare(options, size)),
    ]
    print(*lines, sep="\n")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
