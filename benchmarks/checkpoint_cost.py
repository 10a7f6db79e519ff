"""What checkpoints cost a training of the paper's base model: the wait of a step, and the work beside it.

    python -m benchmarks.checkpoint_cost [FOLDER]

Writes checkpoints of base (37,000 symbols, float32, with Adam's state) into a folder of its own in FOLDER, which is to
be on the disk that matters, while nothing is trained; then times training steps. Prints a Markdown table and writes it
to benchmarks/results/checkpoint_cost.md.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import circumstances, table
from transduce.config import TrainConfig, TransformerConfig
from transduce.models import Transformer
from transduce.training import Progress, list_checkpoints, look, make_optimizer, save_checkpoint
from transduce.training.writer import Copies, Snapshot
from transduce.workflows.trial import full_batch, try_training

RESULT: Final = Path(__file__).parent / "results" / "checkpoint_cost.md"
ROUNDS: Final = 5
INTERVAL: Final = 500
BATCH_TOKENS: Final = 2048  # a twelfth of the paper's: larger batches make checkpoints cheaper
LENGTH: Final = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        lines = measure(Path(folder))
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def measure(folder: Path) -> list[str]:
    config = TransformerConfig()
    model = Transformer(config)
    optimizer = take_a_step(model)
    copies, waits = Copies(), []
    begun = time.perf_counter()
    copies.reserve(model)
    reserved = time.perf_counter() - begun
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        snapshot = copies.take(look(model, optimizer, Progress(step=1)))
        waits.append(time.perf_counter() - begun)
    written = [write(folder, snapshot) for _ in range(ROUNDS)]
    size = sum(path.stat().st_size for path in list_checkpoints(folder)[0][1].iterdir())
    del model, optimizer, copies, snapshot
    batch = full_batch(config, BATCH_TOKENS, LENGTH)
    step = batch.target_tokens / next(
        iter(try_training(config, TrainConfig(), [batch], torch.device("cpu")).speeds.values())
    )
    return report(size, reserved, waits, written, step)


def take_a_step(model: Transformer) -> torch.optim.Adam:
    """An optimizer with the state that it has after a step."""
    optimizer = make_optimizer(model, TrainConfig())
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def write(folder: Path, snapshot: Snapshot) -> tuple[float, float, float]:
    """Seconds by the clock, of the processor's, and the longest time that another thread got no turn meanwhile."""
    done, stall, figures = threading.Event(), 0.0, []

    def save() -> None:
        wall, work = time.perf_counter(), time.thread_time()
        save_checkpoint(folder, snapshot, keep=1)
        figures.extend([time.perf_counter() - wall, time.thread_time() - work])
        done.set()

    threading.Thread(target=save).start()
    last = time.perf_counter()
    while not done.wait(0.001):
        now = time.perf_counter()
        stall, last = max(stall, now - last), now
    return figures[0], figures[1], stall


def report(
    size: int, reserved: float, waits: list[float], written: list[tuple[float, float, float]], step: float
) -> list[str]:
    wait = statistics.median(waits)
    wall, work, stall = (statistics.median(column) for column in zip(*written, strict=True))
    share = (wait + work) / (INTERVAL * step)
    rows = [
        ["a checkpoint", f"{size / 1e6:,.0f} MB"],
        ["memory for the snapshot, asked for once, in the thread", f"{reserved:.2f} s"],
        ["a step waits for the snapshot", f"{wait:.2f} s (at most {max(waits):.2f})"],
        ["writing, flushing and hashing in the thread, by the clock", f"{wall:.2f} s"],
        ["the same, of a processor's work", f"{work:.2f} s"],
        ["the longest that another thread got no turn meanwhile", f"{1000 * stall:.0f} ms"],
        [f"a step of {BATCH_TOKENS:,} tokens a side", f"{step:.2f} s"],
        [f"wait and work, of {INTERVAL} such steps", f"{share:.2%}"],
        [
            "that is 1% where a step takes",
            f"{(wait + work) / INTERVAL / 0.01:.2f} s, or on a GPU, where only the wait "
            f"counts, {wait / INTERVAL / 0.01:.3f} s",
        ],
    ]
    head = f"Base, 37,000 symbols, Adam's state; {circumstances()}; median of {ROUNDS}."
    return [head, "", *table(["what", "figure"], rows)]


if __name__ == "__main__":
    main()
