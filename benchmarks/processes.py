"""Two processes of one thread each against one process of two threads: training by turns, on the same two cores.

    python -m benchmarks.processes [--data DIR] [--sizes recipe,base] [--number N] [--steps N] [--rounds N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. Steps are the same for both: the
processes divide each batch. Prints Markdown tables of target tokens a second (padding not counted) and writes them to
benchmarks/results/processes.md.
"""

import argparse
import multiprocessing
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, final
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.peers.batches import Corpus, real_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import describe, make_config, parse_sizes
from transduce.config import TrainConfig
from transduce.data import Batch, divide
from transduce.kernels import resolve_precision
from transduce.models import build
from transduce.training import connect, join_processes, make_optimizer, place_model, step_work, train_step
from transduce.training.work import join_work

RESULT: Final = Path(__file__).parent / "results" / "processes.md"
CPU: Final = torch.device("cpu")
VOCABULARY: Final = 8_000
BATCH_TOKENS: Final = 4_096
_START: Final = multiprocessing.get_context("spawn")


def part_of(batch: Batch, rank: int, number: int) -> Batch:
    """The rows of a batch that one of several processes learns from, as a training divides them."""
    tokens = batch.source_lengths + batch.target_lengths
    rows = divide(np.arange(len(tokens)), tokens, number)[rank]
    source, target = (int(lengths[rows].max()) for lengths in (batch.source_lengths, batch.target_lengths))
    return Batch(
        batch.source[rows, :source],
        batch.source_lengths[rows],
        batch.target[rows, :target],
        batch.labels[rows, :target],
        batch.target_lengths[rows],
    )


@final
@dataclass(frozen=True)
class Team:
    """Processes that train together, by their ends of pipes; asked in turn, they wait in between."""

    ends: tuple[Connection, ...]

    def train(self, batches: Sequence[Batch]) -> float:
        """Seconds of the slowest, from the moment that all have their batches."""
        for rank, end in enumerate(self.ends):
            end.send([part_of(batch, rank, len(self.ends)) for batch in batches])
        for end in self.ends:
            assert end.recv() == "ready"
        start = time.perf_counter()
        for end in self.ends:
            end.send("go")
        for end in self.ends:
            assert end.recv() == "done"
        return time.perf_counter() - start


def start_team(size: str, vocab_size: int, number: int, threads: int) -> Team:
    """So many processes of so many threads each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends = []
    for rank in range(number):
        here, there = _START.Pipe()
        arguments = (there, size, vocab_size, rank, number, threads, port)
        _START.Process(target=_work, args=arguments, daemon=True).start()
        ends.append(here)
    return Team(tuple(ends))


def _work(end: Connection, size: str, vocab_size: int, rank: int, number: int, threads: int, port: int) -> None:
    torch.set_num_threads(threads)
    environment = {"RANK": str(rank), "WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with patch.dict("os.environ", environment), join_processes(10) as processes:
        torch.manual_seed(1)
        model = build(make_config(size, vocab_size))
        place_model(model, processes, "data")
        network, optimizer = connect(model, processes, "data"), make_optimizer(model, TrainConfig())
        dtype = resolve_precision("auto", CPU)
        while (batches := end.recv()) is not None:
            end.send("ready")
            end.recv()
            for batch in batches:
                work = join_work(step_work([batch]), processes)
                train_step(network, optimizer, [batch], 1e-4, dtype, tokens=work.target)
            end.send("done")


def measure(size: str, corpus: Corpus, number: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Target tokens a second, round by round; one round more comes first, and warms up."""
    teams = {
        f"one process of {number} threads": start_team(size, corpus.vocab_size, 1, number),
        f"{number} processes of one thread": start_team(size, corpus.vocab_size, number, 1),
    }
    speeds: dict[str, list[float]] = {name: [] for name in teams}
    for round_ in range(rounds + 1):
        chosen = corpus.take(round_ * steps, steps)
        for name, team in sorted(teams.items(), reverse=round_ % 2 == 1):
            seconds = team.train(chosen)
            if round_:
                speeds[name].append(sum(batch.target_tokens for batch in chosen) / seconds)
    for team in teams.values():
        for end in team.ends:
            end.send(None)
    return speeds


def show(size: str, corpus: Corpus, speeds: dict[str, list[float]]) -> list[str]:
    """A table of the medians, and the median of the rounds' ratios to the first."""
    first = next(iter(speeds.values()))
    lines = [
        f"{size}: {describe(make_config(size, corpus.vocab_size))}; {corpus.describe()}",
        "",
        "| | target tokens a second | to the first |",
        "|---|---|---|",
    ]
    for name, found in speeds.items():
        ratio = statistics.median(b / a for a, b in zip(first, found, strict=True))
        lines.append(f"| {name} | {statistics.median(found):,.0f} | {ratio:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", type=parse_sizes, default=["recipe", "base"])
    parser.add_argument("--number", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    corpus = real_corpus(options.data, BATCH_TOKENS, VOCABULARY)
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; {resolve_precision('auto', CPU)}. Medians of "
        f"{options.rounds} rounds of {options.steps} steps, by turns."
    ]
    for size in options.sizes:
        lines += ["", *show(size, corpus, measure(size, corpus, options.number, options.steps, options.rounds))]
        print(*lines, sep="\n", flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
