"""Our training step beside what one could pick instead: MarianMTModel of transformers and torch.nn.Transformer.

    python -m benchmarks.training [--data DIR] [--sizes base,recipe,tiny] [--curves 500] [--compile] [--low] [--quick]

DIR holds train.en.gz and train.de.gz of Multi30k; without it, phrases are made up. All train the same model: the same
function of the same weights (with bias in the attention, as Marian has it), dropout 0.1, label smoothing 0.1, by fused
Adam; each in a process of its own, one after the other. The matrix products of our step run beside them, too, and
nothing else, by PyTorch's library: what a step by that could at best be. Prints Markdown tables of target tokens a
second, padding not counted, and writes them, and every round's figures, to training.md and training.json of
benchmarks/results. --low leaves out float32 and bfloat16 weights: a third of the time. --quick shows in two minutes
that all of it works, and writes nothing unless --out says where. --curves trains ours and the best peer of the last
size, and that in float32, too, to compare their losses.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.peers.batches import Corpus, fixed_corpus, real_corpus
from benchmarks.peers.contestant import Contestant, make_contestants
from benchmarks.peers.loss_curves import Comparison, compare_curves
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.race import Rules, race
from benchmarks.peers.report import Section, show_curves, show_summary
from benchmarks.peers.sizes import describe, make_config, parse_sizes
from transduce.models import Transformer

RESULTS: Final = Path(__file__).parent / "results"
CPU: Final = torch.device("cpu")
VOCABULARY: Final = 8_000
FIXED_LENGTH, FIXED_VOCABULARY = 16, 10_000
QUICK: Final[dict[str, Any]] = {
    "sizes": ["tiny"],
    "threads": [1],
    "rounds": 1,
    "steps": 1,
    "warm_up": 1,
    "batch_tokens": 512,
}


def main() -> None:
    options = parse()
    real = real_corpus(options.data, options.batch_tokens, VOCABULARY)
    fixed = fixed_corpus(options.batch_tokens // FIXED_LENGTH, FIXED_LENGTH, FIXED_VOCABULARY)
    sections = []
    for size in options.sizes:
        for corpus in (real, fixed):
            sections.append(measure(size, corpus, options))
            print(*sections[-1].show(), "", sep="\n", flush=True)
    shown, curves = compare(sections[-2], real, options) if options.curves else ([], [])
    lines = ["# Training beside its peers", "", describe_setting(options), "", *show_summary(sections), *shown]
    print(*lines, sep="\n")
    if options.out:
        write(options, [*lines, *(line for section in sections for line in ("", *section.show()))], sections, curves)


def measure(size: str, corpus: Corpus, options: argparse.Namespace) -> Section:
    """All contestants, and the products of ours alone, on one model and one kind of batches."""
    config = make_config(size, corpus.vocab_size, norm=options.norm)
    contestants = [each for each, _ in make_contestants(Transformer(config), compiled=options.compile)]
    if options.low:
        contestants = [each for each in contestants if each.precision == contestants[0].precision]
    products = Contestant("products", "our step's matrix products alone", contestants[0].precision)
    rules = Rules(options.threads, options.rounds, options.steps, options.warm_up)
    results = race([*contestants, products], config, corpus, rules)
    return Section(size, describe(config), corpus.describe(), results)


def compare(section: Section, corpus: Corpus, options: argparse.Namespace) -> tuple[list[str], list[Comparison]]:
    """Lines and figures of loss curves on a section's model, without and with dropout.

    Ours, the best peer's, and that peer's in float32, which shows how far rounding alone takes it.
    """
    ours, peer = section.best[0].contestant, section.best_peer.contestant
    contestants = [*dict.fromkeys((ours, peer, replace(peer, precision="float32")))]
    configs = [
        make_config(section.size, corpus.vocab_size, norm=options.norm, dropout=dropout) for dropout in (0.0, 0.1)
    ]
    curves = [each for one in configs for each in compare_curves(one, CPU, corpus, contestants, options.curves)]
    return ["", *show_curves(f"{section.size}; {section.batches}", curves)], curves


def describe_setting(options: argparse.Namespace) -> str:
    return (
        f"{describe_machine(CPU)}; {describe_versions(CPU)}. {options.rounds} rounds of {options.steps} steps, all in "
        f"turn in each round, each in a process of its own after {max(options.warm_up, options.steps)} steps on the "
        f"same batches; medians of the rounds, and of the rounds' ratios. Each with that of "
        f"{' and '.join(map(str, options.threads))} threads that suits it."
    )


def write(options: argparse.Namespace, lines: list[str], sections: list[Section], curves: list[Comparison]) -> None:
    record = {
        "machine": describe_machine(CPU),
        "versions": describe_versions(CPU),
        **{
            name: getattr(options, name)
            for name in ("threads", "rounds", "steps", "warm_up", "batch_tokens", "norm", "compile")
        },
        "sections": [section.record() for section in sections],
        "curves": [asdict(one) for one in curves],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", type=parse_sizes, default=["base", "recipe", "tiny"])
    parser.add_argument("--norm", choices=("post", "pre"), default="post", help="pre: Marian has none, and is left out")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of each contestant in each round")
    parser.add_argument("--warm-up", type=int, default=6, metavar="STEPS", help="before those, that do not count")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="budget of a batch for each side")
    parser.add_argument("--curves", type=int, default=0, metavar="STEPS")
    parser.add_argument("--compile", action="store_true", help="the peers by torch.compile, too")
    parser.add_argument("--low", action="store_true", help="those that train in our precision alone")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_known_args()[0].quick
    # What is given goes before what --quick means.
    parser.set_defaults(**QUICK if quick else {"out": RESULTS})
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
