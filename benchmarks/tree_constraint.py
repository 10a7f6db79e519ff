"""What the constraint of well-formed trees costs search itself, beside a model that costs next to nothing.

    OMP_NUM_THREADS=1 python -m benchmarks.tree_constraint RUN [--beams 1,4,21] [--rounds 5] [--sentences 64]

RUN's vocabulary and the words of its dev treebank (sentences of 15 to 35 words), and a model of one layer of width 16
with random weights. With the constraint and without, searches alternate; a figure is the least CPU time of a thread
over the rounds, in microseconds per symbol of the best outputs. So it says what Python and ranking add to each symbol
of a parser, whose own time per symbol (``benchmarks.parsing``) says what share that is.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from benchmarks.page import circumstances, table
from transduce.config import preset, read_run
from transduce.data import read_treebank
from transduce.inference import load
from transduce.inference.parsing import TreeVocabulary
from transduce.kernels import resolve_format
from transduce.models import build, make_ready
from transduce.search import Request, SearchSettings, WellFormed, beam_search
from transduce.workflows.run_directory import RunDirectory

SIZES: Final = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 16, "heads": 2}
SHORTEST, LONGEST, ROOM = 15, 35, 4


def main() -> None:
    parser = argparse.ArgumentParser(description="What the constraint of well-formed trees costs search itself.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--beams", type=lambda text: [int(each) for each in text.split(",")], default=[1, 4, 21])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=64)
    given = parser.parse_args()
    data = read_run(RunDirectory(given.run).config).data
    every = (placed.tree.words for placed in read_treebank(data.dev, data.folder))
    words = [each for each in every if SHORTEST <= len(each) <= LONGEST][: given.sentences]
    rows = list(measure(given.run, words, given.beams, given.rounds))
    print("\n".join([circumstances(), "", *table(["beam", "with", "without", "the constraint's cost"], rows)]))


def measure(run: Path, words: Sequence[list[str]], beams: Sequence[int], rounds: int) -> list[list[str]]:
    """A row for each beam, in microseconds a symbol."""
    tokenizer = load(run).tokenizers.target
    vocabulary, special = TreeVocabulary.of(tokenizer), tokenizer.special
    assert vocabulary is not None, f"{run}: is no parser"
    torch.manual_seed(0)
    model = build(preset("base", {**SIZES, "vocab_size": tokenizer.vocab_size})).eval().requires_grad_(False)
    ready = make_ready(model, resolve_format("float32", native=True, device=torch.device("cpu")))
    spelled = [tokenizer.encode(each) for each in words]
    sources = [[*(piece for word in each for piece in word), special.end] for each in spelled]
    constraint = WellFormed(vocabulary.symbols, dict(enumerate(spelled)))

    def spent(beam: int, *, kept: bool) -> float:
        settings = SearchSettings(
            special.begin, special.end, (special.pad,), beam, constraints=(constraint,) if kept else ()
        )
        waiting = [[Request(each, ROOM * len(each), settings, number) for number, each in enumerate(sources)]]
        start = time.thread_time()
        found = list(beam_search(ready, lambda _: waiting.pop() if waiting else []))
        taken = time.thread_time() - start
        return taken / sum(len(each[0].ids) + 1 for _, each in found if isinstance(each, list)) * 1e6

    rows = []
    for beam in beams:
        times = [(spent(beam, kept=True), spent(beam, kept=False)) for _ in range(rounds + 1)][1:]
        kept, free = map(min, zip(*times, strict=True))
        rows.append([str(beam), f"{kept:.1f}", f"{free:.1f}", f"{kept - free:.1f}"])
    return rows


if __name__ == "__main__":
    main()
