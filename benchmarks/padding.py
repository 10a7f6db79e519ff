"""How much of a plan's batches is padding, by corpus and budget.

    python -m benchmarks.padding NAME=SOURCE,TARGET ...

Each corpus is two files, tokenized by a BPE vocabulary of 8,000 symbols learned from both. Prints a Markdown table and
writes it to benchmarks/results/padding.md.
"""

import argparse
import itertools
from pathlib import Path
from typing import Final

import numpy as np

from transduce.data import padding_share, plan_window, read_pairs
from transduce.text import learn_bpe

RESULT: Final = Path(__file__).parent / "results" / "padding.md"
BUDGETS: Final = (2_048, 4_096, 25_000)
VOCABULARY: Final = 8_000
LONGEST: Final = 256  # longer pairs are left out, as a run file does


def measure(name: str, source: Path, target: Path) -> str:
    """A row of the table."""
    pairs = list(read_pairs(source, target))
    tokenizer = learn_bpe(itertools.chain.from_iterable(pairs), VOCABULARY)
    sides = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    lengths = [np.array([len(ids) + 1 for ids in side], np.int32) for side in sides]
    short = np.maximum(*lengths) <= LONGEST
    source_lengths, target_lengths = (side[short] for side in lengths)
    shares = []
    for budget in BUDGETS:
        plan = plan_window(source_lengths, target_lengths, budget, key=(1, 0))
        shares.append(f"{padding_share(source_lengths, target_lengths, plan):.1%} in {len(plan):,}")
    means = f"{source_lengths.mean():.1f} / {target_lengths.mean():.1f}"
    return f"| {name} | {len(source_lengths):,} | {means} | {' | '.join(shares)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="NAME=SOURCE,TARGET")
    budgets = " | ".join(f"padding in batches of {budget:,}" for budget in BUDGETS)
    lines = [f"| corpus | pairs | mean tokens | {budgets} |", "|---|---|---|" + "---|" * len(BUDGETS)]
    for corpus in parser.parse_args().corpora:
        name, files = corpus.split("=", 1)
        lines.append(measure(name, *map(Path, files.split(","))))
        print(lines[-1], flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
