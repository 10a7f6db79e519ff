"""What the C++ kernels gain where recurrent systems are trained: each system with them and without, by turns.

    python -m benchmarks.recurrent_step [--data DIR] [--steps N] [--rounds N]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. The systems are Table 2's at equal
parameters, and the model of recipes/multi30k-recurrent.toml. Prints a Markdown table of target tokens a second (padding
not counted) and writes it to benchmarks/results/recurrent_step.md.
"""

import argparse
import statistics
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.peers.batches import real_corpus
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.training_step import ALL, CPU, Variant, measure, without_native
from transduce.config import REFERENCE_SIZE, SYSTEMS, ModelConfig, read_run
from transduce.kernels import keep_freed_memory, resolve_precision
from transduce.lab.equal_size import choose_size, count_parameters

RESULT: Final = Path(__file__).parent / "results" / "recurrent_step.md"
RECIPE: Final = Path(__file__).parent.parent / "recipes" / "multi30k-recurrent.toml"
RECURRENT: Final = "deep-att", "gnmt", "no-attention", "moe"
BATCH_TOKENS: Final = 1280
VOCABULARY: Final = 4000
VARIANTS: Final[dict[str, Variant]] = {
    "as shipped": nullcontext,
    "recurrences by PyTorch": partial(without_native, "recurrence", "additive"),
    "without C++": partial(without_native, *ALL, "recurrence", "additive"),
}


def models(vocab_size: int) -> dict[str, ModelConfig]:
    """The recurrent systems of Table 2, as large as the Transformer, and the recipe's model."""
    sizes = {"vocab_size": vocab_size}
    parameters = count_parameters(SYSTEMS[0].model(REFERENCE_SIZE), sizes)
    chosen = {each.name: choose_size(each, parameters, sizes) for each in SYSTEMS if each.name in RECURRENT}
    return {RECIPE.stem: read_run(RECIPE).model, **chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    corpus = real_corpus(options.data, BATCH_TOKENS, VOCABULARY)
    lines = [
        f"{describe_machine(CPU)}; {describe_versions(CPU)}; threads: {torch.get_num_threads()}; "
        f"{resolve_precision('auto', CPU)}. Medians of {options.rounds} rounds of {options.steps} steps, alternating. "
        f"{corpus.describe()}.",
        "",
        f"| model | {' | '.join(VARIANTS)} | as shipped is faster by |",
        f"|---|{'---|' * len(VARIANTS)}---|",
    ]
    for name, config in models(corpus.vocab_size).items():
        sized = config.model_copy(update={"vocab_size": corpus.vocab_size})
        speeds = measure(sized, corpus, options.steps, options.rounds, VARIANTS)
        shipped, *others = speeds.values()
        ratios = [statistics.median(a / b for a, b in zip(shipped, each, strict=True)) for each in others]
        medians = " | ".join(f"{statistics.median(each):,.0f}" for each in speeds.values())
        lines.append(f"| {name} | {medians} | {', '.join(f'{ratio:.2f}' for ratio in ratios)} |")
        print(lines[-1], flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
