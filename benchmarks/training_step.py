"""What each fast path gains: training with each replaced by its plain form, alternating in one process.

    python -m benchmarks.training_step [--data DIR] [--sizes recipe,tiny] [--steps N] [--rounds N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. Prints Markdown tables of target
tokens a second (padding not counted) and writes them to benchmarks/results/training_step.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.peers.batches import Corpus, real_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import describe, make_config, parse_sizes
from transduce.config import ModelConfig, TrainConfig
from transduce.kernels import Dropped, RaggedLayout, keep_freed_memory, resolve_precision, smoothed_cross_entropy
from transduce.models import Tokens, build
from transduce.training import make_optimizer, step_seed, train_step

Variant = Callable[[], AbstractContextManager[object]]

RESULT: Final = Path(__file__).parent / "results" / "training_step.md"
CPU: Final = torch.device("cpu")
VOCABULARY: Final = 8_000
# Where each kernel that is written in C++ too asks whether it may use that. A layer is one call only with all of them.
DOORS: Final = {
    "linear maps": ("linear_maps", "sublayers"),
    "dropout, sum and norm": ("add_norm", "sublayers"),
    "dropout alone": ("dropout", "sublayers"),
    "attention": ("ragged_attention", "sublayers"),
    "cross-entropy": ("loss",),
}
ALL: Final = tuple(dict.fromkeys(chain.from_iterable(DOORS.values())))


@contextmanager
def without_native(*kernels: str) -> Iterator[None]:
    """These kernels in PyTorch's operations."""
    with ExitStack() as stack:
        for kernel in kernels:
            stack.enter_context(patch(f"transduce.kernels.{kernel}.has_native", lambda *_: False))
        yield


def by_sublayers() -> AbstractContextManager[object]:
    """Each sub-layer a node of autograd's graph, and each norm."""
    return without_native("sublayers")


@contextmanager
def apart() -> Iterator[None]:
    """Each map, attention and ReLU a node of autograd's graph."""
    with ExitStack() as stack:
        stack.enter_context(by_sublayers())
        for kernel in ("ragged_attention", "feed_forward"):
            stack.enter_context(patch(f"transduce.kernels.{kernel}.maps_rows", lambda *_: False))
        yield


@contextmanager
def plain() -> Iterator[None]:
    """PyTorch's operations, its own dropout, and every logit at once."""

    def loss(
        hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return smoothed_cross_entropy(F.linear(hidden, weight), labels, smoothing, weights)

    def drop(x: Tensor, dropped: Dropped) -> Tensor:
        return F.dropout(x, dropped.share)

    with ExitStack() as stack:
        stack.enter_context(without_native(*ALL))
        stack.enter_context(patch("transduce.models.contract.projected_cross_entropy", loss))
        for user in ("layers.residual", "layers.dropout", "kernels.add_norm", "kernels.feed_forward", "kernels.scores"):
            stack.enter_context(patch(f"transduce.{user}.dropout", drop))
        yield


@contextmanager
def with_padding() -> Iterator[None]:
    """Padding goes through all layers and the loss, as if it were symbols; there are no fillers."""

    def layout(tokens: Tokens) -> RaggedLayout:
        width = tokens.ids.shape[1]
        return RaggedLayout.of(torch.full_like(tokens.lengths, width), width, tokens.ids.device, tokens.seeds)

    with patch.object(Tokens, "layout", layout), patch("transduce.training.step.fill_up", lambda batch: batch):
        yield


VARIANTS: Final[dict[str, Variant]] = {
    "as shipped": nullcontext,
    **{f"without C++ for {what}": partial(without_native, *kernels) for what, kernels in DOORS.items()},
    "with a node for each sub-layer": by_sublayers,
    "with a node for each operation": apart,
    "without C++": partial(without_native, *ALL),
    "and with PyTorch's dropout and loss": plain,
    "with padding": with_padding,
}


def measure(
    config: ModelConfig, corpus: Corpus, steps: int, rounds: int, variants: Mapping[str, Variant] = VARIANTS
) -> dict[str, list[float]]:
    """Target tokens a second of each variant, round by round; one round more comes first, and warms up."""
    model = build(config)
    optimizer, dtype = make_optimizer(model, TrainConfig()), resolve_precision("auto", CPU)
    speeds: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(rounds + 1):
        chosen = corpus.take(round_ * steps, steps)
        # Each goes first in its turn, so that nobody always follows the same one.
        turn = round_ % len(variants)
        for name, enter in [*variants.items()][turn:] + [*variants.items()][:turn]:
            with enter():
                start = time.perf_counter()
                for number, batch in enumerate(chosen):
                    train_step(model, optimizer, [batch], 1e-4, dtype, step_seed(round_, number))
                seconds = time.perf_counter() - start
            if round_:
                speeds[name].append(sum(batch.target_tokens for batch in chosen) / seconds)
    return speeds


def show(size: str, corpus: Corpus, speeds: dict[str, list[float]]) -> list[str]:
    """A table of the medians, and of those of the rounds' ratios."""
    lines = [
        f"{size}: {describe(make_config(size, corpus.vocab_size))}; {corpus.describe()}",
        "",
        "| variant | target tokens a second | as shipped is faster by |",
        "|---|---|---|",
    ]
    for name, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speeds["as shipped"], found, strict=True))
        lines.append(f"| {name} | {statistics.median(found):,.0f} | {ratio:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", type=parse_sizes, default=["recipe", "tiny"])
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    corpus = real_corpus(options.data, options.batch_tokens, VOCABULARY)
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; threads: {torch.get_num_threads()}; "
        f"{resolve_precision('auto', CPU)}. Medians of {options.rounds} rounds of {options.steps} steps, alternating."
    ]
    for size in options.sizes:
        speeds = measure(make_config(size, corpus.vocab_size), corpus, options.steps, options.rounds)
        lines += ["", *show(size, corpus, speeds)]
        print(*lines, sep="\n", flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
