"""Several models of one task beside each other: quality and speed, by turns in one process.

    python -m benchmarks.students SOURCE REFERENCE teacher=MODEL student=MODEL ... [--rounds 3] [--precision int8]

Prints a Markdown table: BLEU, sentences a second (median of the rounds), and milliseconds for one sentence alone
(median of the first 150), at beam 4 and greedily.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.page import circumstances, table
from transduce.data import read_pairs
from transduce.evaluation import corpus_score
from transduce.inference import Translator, load

ALONE: Final = 150


def seconds(model: Translator, texts: list[str], beam: int) -> float:
    """How long it takes."""
    start = time.perf_counter()
    model.translate(texts, beam_size=beam)
    return time.perf_counter() - start


def measure(
    models: dict[str, Translator], texts: list[str], references: list[str], beam: int, rounds: int
) -> list[list[str]]:
    """A row for each model."""
    outputs = {
        name: [each.text for each in model.translate(texts, beam_size=beam)] for name, model in models.items()
    }  # which warms up, too
    together: dict[str, list[float]] = {name: [] for name in models}
    alone: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            together[name].append(len(texts) / seconds(model, texts, beam))
    for text in texts[:ALONE]:
        for name, model in models.items():
            alone[name].append(1000 * seconds(model, [text], beam))
    return [
        [
            name,
            str(beam),
            f"{corpus_score('bleu', outputs[name], references).value:.2f}",
            f"{statistics.median(together[name]):,.0f}",
            f"{statistics.median(alone[name]):.2f}",
        ]
        for name in models
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="int8")
    options = parser.parse_args()
    pairs = list(read_pairs(options.source, options.reference))
    texts, references = [one for one, _ in pairs], [other for _, other in pairs]
    named = (text.partition("=") for text in options.models)
    models = {name: load(path, options.precision) for name, _, path in named}
    rows = [row for beam in (4, 1) for row in measure(models, texts, references, beam, options.rounds)]
    print(f"{circumstances()}; {len(texts):,} lines, {options.precision}.", "", sep="\n")
    print(*table(["model", "beam", "BLEU", "sentences a second", "one alone (ms)"], rows), sep="\n")


if __name__ == "__main__":
    main()
