"""What a corpus that streams costs as it goes on: the memory of the process, and how fast windows come.

    python -m benchmarks.stream_memory [--pairs 1000000] [--files 10] [--window 200000]

Pairs are made up as in ``benchmarks.corpus_size``, in files that end in .jsonl.gz; windows are read as a training reads
them, one ahead, and nothing is learned from them. A line a window: pairs so far, pairs a second, and the most memory
that the process had resident. Fails where the memory of the last window is beyond that of the third by a twentieth.
"""

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from benchmarks.corpus_size import DEV, MIB, VOCABULARY, WORDS, make_lines
from benchmarks.page import circumstances, table
from benchmarks.resident import forget_peak, resident_bytes
from transduce.config import Corpus, DataConfig, RunConfig, TokenizerConfig
from transduce.data import Stream
from transduce.workflows.encoding import StreamEncoder
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory

SETTLED: Final = 3  # windows, of which two are in memory
MORE: Final = 1.05


def write_corpus(folder: Path, pairs: int, files: int, words: int = WORDS) -> None:
    """Training files whose names rise, and dev, of so many different words a side."""
    lines = make_lines(pairs, 1, words)
    (folder / "parts").mkdir()
    for number in range(files):
        share = pairs // files + (number < pairs % files)
        write_pairs(folder / "parts" / f"{number:05}.jsonl.gz", islice(lines, share))
    write_pairs(folder / "dev.jsonl.gz", make_lines(min(DEV, pairs), 2, words))


def write_pairs(path: Path, pairs: Iterator[tuple[str, str]]) -> None:
    """A JSON object a line."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as stream:
        for source, target in pairs:
            stream.write(json.dumps({"source": source, "target": target}) + "\n")


def configure(folder: Path, window: int) -> RunConfig:
    """A run that reads the corpus once."""
    data = DataConfig(
        root=str(folder),
        train=(Corpus(pairs="parts"),),
        dev=Corpus(pairs="dev.jsonl.gz"),
        streaming=True,
        shuffle_window=window,
        at_end="stop",
    )
    return RunConfig(data=data, tokenizer=TokenizerConfig(vocab_size=VOCABULARY, learn_from=50_000))


def read_windows(folder: Path, window: int) -> Iterator[tuple[int, float, float]]:
    """Of each window, the pairs until its end, the seconds it took, and MiB at the most so far."""
    config = configure(folder, window)
    prepared = prepare(config, RunDirectory(folder / "run"))
    stream = Stream(config.data, StreamEncoder(config, prepared.tokenizers), config.train.batch_tokens, seed=1)
    forget_peak()  # what the tokenizer was learned with is free again
    began = time.perf_counter()
    with stream.open(0, 0, None) as windows:
        while (each := windows.take()) is not None:
            taken = time.perf_counter()
            yield each.position.read, taken - began, resident_bytes("VmHWM") / MIB
            began = taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--window", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name), options.pairs, options.files)
        windows = list(read_windows(Path(name), options.window))
    rows, before = [], 0
    for read, seconds, memory in windows:
        rows.append([f"{read:,}", f"{(read - before) / seconds:,.0f}", f"{memory:,.0f}"])
        before = read
    print(circumstances(), "", *table(["pairs read", "pairs a second", "MiB at the most"], rows), sep="\n")
    settled, last = windows[min(SETTLED, len(windows)) - 1], windows[-1]
    if last[2] > MORE * settled[2]:
        sys.exit(f"memory grew from {settled[2]:,.0f} to {last[2]:,.0f} MiB")


if __name__ == "__main__":
    main()
