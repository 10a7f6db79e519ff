"""What a trained parser does on its dev treebank: brackets by beam, length and label, and what the constraint changes.

    python -m benchmarks.parsing RUN [--beams 1,4,21] [--rounds 3] [--sentences N] [--scored N] [--name NAME]

With the constraint every output is a tree over the sentence's words; without it, what is none is repaired. Both take
turns at every beam; the speed is the median of the rounds, over the first N sentences of dev, in sentences and in
symbols a second: without the constraint, outputs may end too soon. Brackets are counted on all of dev, or on so many
of its first sentences (``--scored``), at the first beam by length and label too, beside a baseline: every phrase an NP
whose second part is all that follows. Writes benchmarks/results/parsing-NAME.md.
"""

import argparse
import gc
import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

from benchmarks.page import circumstances, table
from benchmarks.rounds import alternate
from transduce.cli.main import BETWEEN_COLLECTIONS
from transduce.config import read_run
from transduce.data import read_treebank
from transduce.evaluation import BracketCounts, count_all
from transduce.inference import Parse, Parser, Translation, Translator, load
from transduce.text import Tree
from transduce.workflows.run_directory import RunDirectory

RESULTS: Final = Path(__file__).parent / "results"
LENGTHS: Final = (10, 20, 30, 40, 60, 10_000)
LABELS: Final = 15
WAYS: Final = {"constraint": True, "repair": False}


@final
class Counting:
    """A translator that counts the symbols of its outputs."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self.tokenizers = translator.tokenizers
        self.symbols = 0

    def translate(self, *given: Any, **options: Any) -> list[Translation]:  # noqa: ANN401 - as the translator takes it
        """Translate, and count the best outputs' symbols, end symbols too."""
        found: list[Translation] = self._translator.translate(*given, **options)
        self.symbols += sum(len(each.tokens) + 1 for each in found)
        return found


def right_branching(tree: Tree) -> Tree:
    """The baseline for a sentence; the last punctuation stands in the root."""
    leaves = list(tree.leaves())
    last = leaves.pop() if len(leaves) > 1 and leaves[-1].label == "." else None
    made = Tree("NP", (leaves[-1],))
    for leaf in reversed(leaves[:-1]):
        made = Tree("NP", (leaf, made))
    return Tree("S", (made,) if last is None else (made, last))


def row(name: str, counts: BracketCounts) -> list[str]:
    """A line of the table of brackets."""
    figures = (counts.f1, counts.precision, counts.recall, counts.exact_match, counts.no_crossing)
    return [name, *(f"{each:.2f}" for each in figures), f"{counts.tagging_accuracy:.2f}", str(counts.failures)]


def by_length(pairs: Sequence[tuple[Tree, Tree | None]]) -> Iterable[list[str]]:
    """Brackets of sentences of so many words."""
    first = 1
    for last in LENGTHS:
        some = [pair for pair in pairs if first <= len(pair[0].words) <= last]
        if some:
            shown = f"{first} to {last}" if last < LENGTHS[-1] else f"{first} and more"
            yield [shown, str(len(some)), f"{count_all(some).f1:.2f}"]
        first = last + 1


def by_label(counts: BracketCounts) -> Iterable[list[str]]:
    """Brackets of the most frequent labels."""
    for label, count in counts.gold.most_common(LABELS):
        own = counts.of(label)
        yield [label, f"{count:,}", f"{own.f1:.2f}", f"{own.precision:.2f}", f"{own.recall:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="What a trained parser does on its dev treebank.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--beams", type=lambda text: [int(each) for each in text.split(",")], default=[1, 4, 21])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=300, help="that the speed is measured on")
    parser.add_argument("--scored", type=int, help="sentences that brackets are counted on; left out: all of dev")
    parser.add_argument("--name", help="of the file of results; left out: the run's")
    given = parser.parse_args()
    gc.set_threshold(BETWEEN_COLLECTIONS)  # as the command: what torch's import has made is not looked through
    data = read_run(RunDirectory(given.run).config).data
    gold = [placed.tree for placed in islice(read_treebank(data.dev, data.folder), given.scored)]
    lines = list(measure(Counting(load(given.run)), gold, given.beams, given.rounds, given.sentences))
    text = "\n".join([f"{circumstances()}; {len(gold):,} sentences of dev.", *lines]) + "\n"
    print(text)
    (RESULTS / f"parsing-{given.name or given.run.name}.md").write_text(text, encoding="utf-8")


def measure(
    translator: Counting, gold: Sequence[Tree], beams: Sequence[int], rounds: int, sentences: int
) -> Iterable[str]:
    """The tables' lines."""
    model, words = Parser(translator), [tree.words for tree in gold]
    brackets = [row("right-branching", count_all((tree, right_branching(tree)) for tree in gold))]
    speeds: list[list[str]] = []
    found: dict[tuple[int, str], list[Parse]] = {}
    for beam in beams:
        for way, kept in WAYS.items():
            parses = found[beam, way] = model.parse(words, beam, well_formed=kept, first_number=None)
            counts = count_all(zip(gold, (each.tree for each in parses), strict=True))
            brackets.append(row(f"beam {beam}, {way}", counts))
        repaired = sum(each.repaired for each in found[beam, "repair"])
        some = words[:sentences]
        written: dict[str, int] = {}

        def run(way: str, some: list[list[str]] = some, beam: int = beam, written: dict[str, int] = written) -> None:
            before = translator.symbols
            model.parse(some, beam, well_formed=WAYS[way], first_number=None)
            written[way] = translator.symbols - before

        taken = alternate({way: partial(run, way) for way in WAYS}, rounds)
        ratio = statistics.median(free / kept for kept, free in zip(*taken.values(), strict=True))
        middle = {way: statistics.median(each) for way, each in taken.items()}
        speeds.append(
            [
                str(beam),
                *(f"{len(some) / middle[way]:.1f}" for way in WAYS),
                f"{ratio:.2f}",
                *(f"{written[way] / middle[way]:,.0f}" for way in WAYS),
                f"{ratio * written['constraint'] / written['repair']:.2f}",
                f"{repaired:,} ({100 * repaired / len(gold):.1f}%)",
            ]
        )
    head = ["", "F1", "precision", "recall", "exact match", "no crossing", "tagging", "no tree"]
    yield from ("", *table(head, brackets))
    head = ["beam", *(f"{what}/s, {way}" for what in ("sentences", "symbols") for way in (*WAYS, "ratio"))]
    head = [each.replace("/s, ratio", ", ratio") for each in head] + ["repaired"]
    yield from ("", *table(head, speeds))
    pairs = list(zip(gold, (each.tree for each in found[beams[0], "constraint"]), strict=True))
    yield from ("", *table(["words", "sentences", "F1"], list(by_length(pairs))))
    head = ["label", "in dev", "F1", "precision", "recall"]
    yield from ("", *table(head, list(by_label(count_all(pairs)))))


if __name__ == "__main__":
    main()
