"""What a shortlist covers, costs in BLEU and gains in speed, by its size: runs, formats and beams, in turns.

    python -m benchmarks.shortlist NAME=RUN,SOURCE,REFERENCE ... [--sizes 25 100 300] [--first 100] [--lines 1000]

Learns lists from each run's own pairs (nothing in the run is changed), and translates the source's first lines with and
without them. Puts the table into ``docs/translating.md``.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import medians
from transduce.bundle import load_bundle
from transduce.config import Precision
from transduce.data import Store, read_lines
from transduce.evaluation import corpus_score
from transduce.inference import Translator
from transduce.models import Shortlist
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.shortlist import cover, learn_shortlist

FORMATS: Final[tuple[Precision, ...]] = ("float32", "int8")
BEAMS: Final = 4, 1
PAIRS: Final = 200_000


@dataclass(frozen=True)
class Subject:
    """A run, and lines to translate with their references."""

    name: str
    run: RunDirectory
    sources: list[str]
    references: list[str]

    @classmethod
    def parse(cls, text: str, lines: int) -> "Subject":
        """As the command line has it."""
        name, _, rest = text.partition("=")
        run, source, reference = rest.split(",")
        texts = [list(read_lines(Path(each)))[:lines] for each in (source, reference)]
        return cls(name, RunDirectory(Path(run)), *texts)


def shortlists(subject: Subject, sizes: Sequence[int], first: int) -> dict[int, Shortlist]:
    """The lists by their size: learned once, and cut."""
    tokenizers = load_bundle(subject.run.root).tokenizers
    largest = learn_shortlist(Store(subject.run.train_store), tokenizers, max(sizes), first, PAIRS)
    copies = largest.translations.shape[1] - max(sizes)
    return {
        size: Shortlist(largest.translations[:, : copies + size], largest.frequent, largest.vocabulary)
        for size in sizes
    }


def measure(subject: Subject, sizes: Sequence[int], first: int, rounds: int) -> Iterator[list[str]]:
    """Rows of the table: one for each format, beam and size."""
    bundle, lists = load_bundle(subject.run.root), shortlists(subject, sizes, first)
    dev = Store(subject.run.dev_store)
    covered = {size: cover(each, dev, bundle.tokenizers.special) for size, each in lists.items()}
    for format_ in FORMATS:
        translators = {size: Translator(bundle, format_, shortlist=each) for size, each in [(0, None), *lists.items()]}
        for beam in BEAMS:
            texts: dict[int, list[str]] = {}

            def translate(size: int, beam: int, kept: dict[int, list[str]], by: Translator) -> None:
                kept[size] = [each.text for each in by.translate(subject.sources, beam, first_number=None)]

            calls: dict[str, Callable[[], object]] = {
                str(size): partial(translate, size, beam, texts, by) for size, by in translators.items()
            }
            seconds = medians(calls, rounds)
            for size in translators:
                found = covered.get(size)
                yield [
                    subject.name,
                    f"{format_}, {'greedy' if beam == 1 else f'beam {beam}'}",
                    "whole vocabulary" if found is None else str(size),
                    f"{bundle.config.vocab_size:,}" if found is None else f"{found.symbols:,.0f}",
                    "" if found is None else f"{found.share:.1%}",
                    f"{corpus_score('bleu', texts[size], subject.references).value:.2f}",
                    f"{len(subject.sources) / seconds[str(size)]:.0f}",
                ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("subjects", nargs="+", metavar="NAME=RUN,SOURCE,REFERENCE")
    parser.add_argument("--sizes", type=int, nargs="+", default=[25, 100, 300])
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    for text in options.subjects:
        rows += measure(Subject.parse(text, options.lines), options.sizes, options.first, options.rounds)
    insert(
        "translating.md",
        "shortlist",
        [
            *table(["model", "search", "size", "symbols a sentence", "of dev", "BLEU", "sentences/s"], rows),
            "",
            f"The first {options.lines:,} lines, `--first {options.first}`, median of {options.rounds} rounds; "
            f"{circumstances()}; `python -m benchmarks.shortlist`.",
        ],
    )


if __name__ == "__main__":
    main()
