"""What the kernels gain: training with each fast path replaced by its plain formula, alternating in one process.

    python -m benchmarks.training_step [--data DIR] [--steps N] [--rounds N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. Prints a Markdown table of target
tokens a second (padding not counted) and writes it to benchmarks/results/training_step.md.
"""

import argparse
import itertools
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TrainConfig, preset
from transduce.data import Batch, Store, make_batch, plan_epoch, read_pairs, write_store
from transduce.data.phrases import make_phrases
from transduce.kernels import resolve_precision, smoothed_cross_entropy
from transduce.models import build
from transduce.text import learn_bpe
from transduce.training import make_optimizer, train_step

# The model of recipes/multi30k.toml.
SIZE = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 256, "d_ff": 512, "heads": 4}
REGIME = {"norm": "pre", "dropout": 0.3}
RESULT = Path(__file__).parent / "results" / "training_step.md"


def plain_dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    return F.dropout(x, probability, training)


def plain_loss(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    return smoothed_cross_entropy(F.linear(hidden, weight), labels, smoothing)


@contextmanager
def variant(*, dropout: bool, loss: bool) -> Iterator[None]:
    """The model with the named operations in their plain form."""
    with (
        patch("transduce.layers.residual.dropout", plain_dropout) if dropout else patch.dict({}),
        patch("transduce.layers.embedding.dropout", plain_dropout) if dropout else patch.dict({}),
        patch("transduce.models.transformer.projected_cross_entropy", plain_loss) if loss else patch.dict({}),
    ):
        yield


VARIANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "as shipped": lambda: variant(dropout=False, loss=False),
    "plain dropout": lambda: variant(dropout=True, loss=False),
    "plain projection and loss": lambda: variant(dropout=False, loss=True),
    "both plain": lambda: variant(dropout=True, loss=True),
}


def batches(data: Path | None) -> tuple[list[Batch], int]:
    """Batches of 4,096 tokens a side, and the size of the vocabulary."""
    pairs = list(read_pairs(data / "train.en.gz", data / "train.de.gz") if data else make_phrases(20_000, 1, 1).train)
    tokenizer = learn_bpe(itertools.chain.from_iterable(pairs), 8000)
    sides = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "train.arrow", zip(*sides, itertools.repeat(0)), {})
        store = Store(Path(folder) / "train.arrow")
        plan = plan_epoch(store.source_lengths + 1, store.target_lengths + 1, 4096, 1, 0)
        return [make_batch(store, rows, tokenizer.special) for rows in plan], tokenizer.vocab_size


def padding(some: list[Batch], side: Literal["source", "target"]) -> float:
    """The share of a side's positions that are padding."""
    positions = sum(int(getattr(batch, side).size) for batch in some)
    return 1 - sum(int(getattr(batch, f"{side}_lengths").sum()) for batch in some) / positions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    some, vocab_size = batches(arguments.data)
    model = build(preset("base", {**SIZE, **REGIME, "vocab_size": vocab_size}))
    optimizer = make_optimizer(model, TrainConfig())
    dtype = resolve_precision("auto", torch.device("cpu"))
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for round_ in range(arguments.rounds + 1):
        for name, enter in VARIANTS.items():
            chosen = some[round_ * arguments.steps : (round_ + 1) * arguments.steps]
            with enter():
                start = time.perf_counter()
                for batch in chosen:
                    train_step(model, optimizer, [batch], 1e-4, dtype)
                seconds = time.perf_counter() - start
            if round_:  # the first round warms up
                speeds[name].append(sum(batch.target_tokens for batch in chosen) / seconds)
    lines = [
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {dtype}, "
        f"vocabulary {vocab_size:,}; padding {padding(some, 'source'):.1%} of the source side, "
        f"{padding(some, 'target'):.1%} of the target side; median of {arguments.rounds} rounds of "
        f"{arguments.steps} steps, alternating",
        "",
        "| variant | target tokens a second | as shipped is faster by |",
        "|---|---|---|",
    ]
    for name, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speeds["as shipped"], found, strict=True))
        lines.append(f"| {name} | {statistics.median(found):,.0f} | {ratio:.2f} |")
    print("\n".join(lines))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
