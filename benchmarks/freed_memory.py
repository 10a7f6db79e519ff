"""What it gains that a training keeps the memory of its steps: processes that do and processes that do not, by turns.

    python -m benchmarks.freed_memory [--data DIR] [--sizes recipe,tiny] [--processes N] [--steps N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. Prints a Markdown table of target
tokens a second and of pages that the system had to hand out, and writes it to benchmarks/results/freed_memory.md.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import torch

from benchmarks.peers.batches import real_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import make_config, parse_sizes
from transduce.config import TrainConfig
from transduce.kernels import resolve_precision
from transduce.models import build
from transduce.training import keep_freed_memory, make_optimizer, train_step

RESULT: Final = Path(__file__).parent / "results" / "freed_memory.md"
CPU: Final = torch.device("cpu")
VOCABULARY, BATCH_TOKENS = 8_000, 2048


def measure(options: argparse.Namespace) -> tuple[float, float]:
    """Target tokens a second, and pages handed out in a step, of this process."""
    corpus = real_corpus(options.data and Path(options.data), BATCH_TOKENS, VOCABULARY)
    model = build(make_config(options.sizes[0], corpus.vocab_size))
    optimizer, dtype = make_optimizer(model, TrainConfig()), resolve_precision("auto", CPU)
    for batch in corpus.take(0, options.warm_up):
        train_step(model, optimizer, [batch], 1e-4, dtype)
    batches = corpus.take(options.warm_up, options.steps)
    pages, start = _pages(), time.perf_counter()
    for batch in batches:
        train_step(model, optimizer, [batch], 1e-4, dtype)
    seconds = time.perf_counter() - start
    return sum(batch.target_tokens for batch in batches) / seconds, (_pages() - pages) / options.steps


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def ask(options: argparse.Namespace, size: str, *, keep: bool) -> tuple[float, float]:
    """The same of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.freed_memory", "--child", "kept" if keep else "returned"]
    command += ["--sizes", size, "--steps", str(options.steps), "--warm-up", str(options.warm_up)]
    command += ["--data", options.data] if options.data else []
    speed, pages = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return speed, pages


def compare(options: argparse.Namespace, size: str) -> list[str]:
    """A size's rows of the table."""
    turns = [(ask(options, size, keep=False), ask(options, size, keep=True)) for _ in range(options.processes)]
    gain = statistics.median(kept[0] / returned[0] for returned, kept in turns)
    rows = []
    for name, found, ratio in (
        ("glibc's own way", [returned for returned, _ in turns], 1.0),
        ("kept, as shipped", [kept for _, kept in turns], gain),
    ):
        speed, pages = (statistics.median(values) for values in zip(*found, strict=True))
        rows.append(f"| {size} | {name} | {speed:,.0f} | {pages:,.0f} | {ratio:.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--sizes", type=parse_sizes, default=["recipe", "tiny"])
    parser.add_argument("--processes", type=int, default=7, help="of either kind")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=40, help="steps: a heap takes long to grow to its size")
    parser.add_argument("--child", choices=("kept", "returned"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child == "kept":
            keep_freed_memory()
        print(json.dumps(measure(options)))
        return
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; threads: {torch.get_num_threads()}. "
        f"Medians of {options.processes} processes of {options.steps} steps of either kind, by turns.",
        "",
        "| model | freed memory | target tokens a second | pages handed out in a step | faster by |",
        "|---|---|---|---|---|",
        *(row for size in options.sizes for row in compare(options, size)),
    ]
    print(*lines, sep="\n")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
