"""What a corpus costs as it grows: preparing it, and the memory of training on it.

    python -m benchmarks.corpus_size [--pairs 10000 100000 1000000] [--large]

Writes benchmarks/results/corpus_size.md and its part of docs/performance.md. Pairs are made up: 25 words a line, of a
million words whose frequency falls with their rank (Zipf's law). Each measurement is in a process of its own; memory is
the most that the process has resident, files that it has mapped included. Linux only; about five minutes on a quiet
machine, and 2 GiB of disk. ``--large`` adds three million pairs. The last row is reckoned, not measured.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, final

import numpy as np

from benchmarks.page import circumstances, insert, table
from benchmarks.resident import growth
from transduce.config import Corpus, DataConfig, RunConfig, TokenizerConfig
from transduce.data import plan_epoch, read_batches
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory

RESULT: Final = Path(__file__).parent / "results" / "corpus_size.md"
PAIRS: Final = (10_000, 100_000, 1_000_000)
LARGE: Final = 3_000_000
BEYOND: Final = 30_000_000
DEV: Final = 2_000
WORDS: Final = 1_000_000
VOCABULARY: Final = 8_000
BATCH_TOKENS: Final = 25_000
FEW: Final = 10_000  # pairs that are made up at a time
MIB: Final = 2**20
SYLLABLES: Final = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]


R = TypeVar("R")


@final
@dataclass(frozen=True)
class Cost:
    """Seconds, and bytes by which a process grew: to prepare a corpus, and to have a training's first batch."""

    prepare_seconds: float
    prepare_memory: float
    batch_seconds: float
    batch_memory: float


def spell(rank: int) -> str:
    """A word of its own for each rank, of more syllables the rarer it is."""
    word = ""
    while rank >= 0:
        rank, syllable = divmod(rank, len(SYLLABLES))
        word += SYLLABLES[syllable]
        rank -= 1
    return word


def make_lines(pairs: int, seed: int, words: int) -> Iterator[tuple[str, str]]:
    """Pairs of sentences; the target's words are the source's, spelled backwards."""
    random = np.random.default_rng(seed)
    sources = [spell(rank) for rank in range(words)]
    targets = [word[::-1] for word in sources]
    for done in range(0, pairs, FEW):
        count = min(FEW, pairs - done)
        length = 22 * np.exp(random.normal(0, 0.5, count))
        sides = []
        for vocabulary in (sources, targets):
            lengths = (length * np.exp(random.normal(0, 0.15, count))).round().clip(2, 200).astype(int)
            # Of equal chance between powers of ten: a word of rank r comes with a frequency of 1 / r.
            ranks = iter((words ** random.random(lengths.sum())).astype(int).tolist())
            sides.append([" ".join(vocabulary[rank - 1] for rank in islice(ranks, n)) + "." for n in lengths.tolist()])
        yield from zip(*sides, strict=True)


def write_corpus(folder: Path, name: str, pairs: int, seed: int) -> None:
    """``NAME.source`` and ``NAME.target``."""
    with (folder / f"{name}.source").open("w") as sources, (folder / f"{name}.target").open("w") as targets:
        for source, target in make_lines(pairs, seed, WORDS):
            sources.write(source + "\n")
            targets.write(target + "\n")


def configure(folder: Path) -> RunConfig:
    """A run on what ``write_corpus`` wrote, with the defaults of a run file."""
    train, dev = (Corpus(source=f"{name}.source", target=f"{name}.target") for name in ("train", "dev"))
    data = DataConfig(root=str(folder), train=(train,), dev=dev)
    return RunConfig(data=data, tokenizer=TokenizerConfig(vocab_size=VOCABULARY))


def measure_prepare(folder: Path) -> tuple[float, int]:
    """Seconds of the preparation, and bytes."""
    return _measure(lambda: prepare(configure(folder), RunDirectory(folder / "run")))


def measure_batch(folder: Path) -> tuple[float, int]:
    """Seconds from the run directory to the first batch, files checked and the epoch planned, and bytes."""

    def begin() -> None:
        prepared = prepare(configure(folder), RunDirectory(folder / "run"))  # sees that the files are as they were
        assert not prepared.new
        plan = plan_epoch(prepared.stored, BATCH_TOKENS, seed=1, epoch=0)
        next(read_batches(prepared.stored, plan, prepared.tokenizers.special))

    return _measure(begin)


def _measure(call: Callable[[], object]) -> tuple[float, int]:
    start = time.perf_counter()
    grew = growth(call)
    return time.perf_counter() - start, grew


def measure(pairs: int) -> Cost:
    """Make up a corpus of so many pairs, and prepare and read it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _alone(write_corpus, folder, "train", pairs, 1)
        _alone(write_corpus, folder, "dev", DEV, 2)
        return Cost(*_alone(measure_prepare, folder), *_alone(measure_batch, folder))


def _alone(call: Callable[..., R], *args: object) -> R:
    """Call in a new process, whose memory nothing else has been in."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *args).result()


def extrapolate(sizes: Sequence[int], costs: Sequence[Cost], pairs: int) -> Cost:
    """What a straight line through the two largest sizes says."""
    (x0, x1), (first, second) = sizes[-2:], (np.array(astuple(cost)) for cost in costs[-2:])
    return Cost(*(second + (second - first) * (pairs - x1) / (x1 - x0)).tolist())


def report(sizes: Sequence[int], costs: Sequence[Cost]) -> list[str]:
    """The lines of the page."""
    rows = [_row(f"{pairs:,}", cost) for pairs, cost in zip(sizes, costs, strict=True)]
    reckoned = _row(f"{BEYOND:,}, by a straight line through the last two", extrapolate(sizes, costs, BEYOND))
    head = ["pairs", "prepare (s)", "prepare grew by (MiB)", "to the first batch (s)", "training's data grew by (MiB)"]
    return [f"{circumstances()}; vocabulary {VOCABULARY:,}", "", *table(head, [*rows, reckoned])]


def _row(name: str, cost: Cost) -> list[str]:
    return [
        name,
        f"{cost.prepare_seconds:,.1f}",
        f"{cost.prepare_memory / MIB:,.0f}",
        f"{cost.batch_seconds:,.2f}",
        f"{cost.batch_memory / MIB:,.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", type=int, default=list(PAIRS))
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    sizes = [*arguments.pairs, *([LARGE] if arguments.large else [])]
    costs = []
    for pairs in sizes:
        costs.append(measure(pairs))
        print(f"{pairs:,}: {costs[-1]}", file=sys.stderr, flush=True)
    lines = report(sizes, costs)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    insert("performance.md", "corpus size", lines)


if __name__ == "__main__":
    main()
