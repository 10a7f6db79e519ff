"""Bulk work on a Ray cluster whose machines come and go, beside plain processes: the same files, bit for bit.

    python -m benchmarks.ray_cluster [--lines 3000] [--partitions 60] [--pairs 100000] [--size tiny] [--words 10]
                                     [--beam 4] [--folder DIR]

Three machines of one core each are pretended on this one (``ray.cluster_utils.Cluster``). They translate so many
lines: when a third of the files stand, one machine is killed; when two thirds do, another joins. What they are compared
with is written by three processes that know nothing of each other, a third of the files each, at once: together they do
what three workers could, were there nothing to share out. Then a corpus of so many pairs is prepared, by one process
and by the machines. The model has random weights, and the text is invented, so many words a line. Fails where a file is
missing, is there besides, or differs. Prints lines a second and the most memory of their own that the commands had in
each third of their time, without mapped files and workers, as a table. What they say goes to NAME.log in the folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.made_up_model import make_up_model, make_up_sentences
from benchmarks.page import circumstances, table
from benchmarks.resident import resident_bytes

_MACHINES: Final = 3
_MACHINE: Final = {"num_cpus": 1, "object_store_memory": 80_000_000}
_LOOK_SECONDS: Final = 0.2
_RUN: Final = """
[data]
train = { source = "train.src", target = "train.trg" }
dev = { source = "dev.src", target = "dev.trg" }
duplicates = "drop"
max_length = 44
[tokenizer]
vocab_size = 4000
"""
# When so many files stand, this happens.
Change = tuple[int, Callable[[], object]]


def main() -> None:
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - an extra

    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        make_up_model(options.size, 2000, folder / "model")
        write_partitions(folder, options.lines, options.partitions, options.words)
        write_corpus(folder, options.pairs)
        translate = ["translate", str(folder / "model"), "--precision", "float32", "--threads", "1"]
        translate += ["--beam-size", str(options.beam), "--input"]
        prepare = ["prepare", str(folder / "run.toml"), "--out"]
        apart, together = folder / "translated by three processes", folder / "translated by three machines"
        alone, shared = folder / "prepared by one process", folder / "prepared by three machines"
        commands = [
            [*translate, str(part), "--output", str(apart / part.name)] for part in sorted((folder / "parts").iterdir())
        ]
        rows = [measure(apart, commands, options.lines), measure(alone, [[*prepare, str(alone)]], options.pairs)]
        machines = Cluster(initialize_head=True, head_node_args=_MACHINE)
        try:
            killed, *_ = (machines.add_node(**_MACHINE) for _ in range(_MACHINES - 1))
            changes = [
                (options.partitions // 3, lambda: machines.remove_node(killed, allow_graceful=False)),
                (2 * options.partitions // 3, lambda: machines.add_node(**_MACHINE)),
            ]
            engine = ["--engine", "ray", "--address", machines.address]
            command = [*translate, str(folder / "in"), "--output", str(together), *engine]
            rows.append(measure(together, [command], options.lines, changes))
            rows.append(measure(shared, [[*prepare, str(shared), *engine]], options.pairs))
        finally:
            machines.shutdown()
        check_same(sorted(each for each in apart.iterdir() if each.is_dir()), together, "*.txt")
        check_same([alone], shared, "*")
    print(f"{options.lines:,} lines in {options.partitions:,} files, model {options.size}; {options.pairs:,} pairs;")
    print(f"{circumstances()}", end="\n\n")
    print(*table(["", "seconds", "lines/s", "MB of the commands, by thirds of their time"], rows), sep="\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--size", default="tiny", help="of benchmarks.peers.sizes")
    parser.add_argument("--words", type=int, default=10, help="of a line")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where all of it is kept")
    return parser.parse_args()


def write_partitions(folder: Path, lines: int, partitions: int, words: int) -> None:
    """Text in files of nearly as many lines each: all of them in one folder, and a third of them in each of three."""
    (folder / "in").mkdir(parents=True)
    sentences = make_up_sentences(lines, words)
    for number in range(partitions):
        path = folder / "in" / f"{number:06}.txt"
        write_lines(path, sentences[number::partitions])
        part = folder / "parts" / str(number % _MACHINES)
        part.mkdir(parents=True, exist_ok=True)
        os.link(path, part / path.name)


def write_corpus(folder: Path, pairs: int) -> None:
    """A run file and its corpora; every seventh pair is there twice."""
    sentences = make_up_sentences(pairs, 10)
    sentences[6::7] = sentences[5::7][: len(sentences[6::7])]
    for side in ("src", "trg"):
        write_lines(folder / f"train.{side}", sentences)
        write_lines(folder / f"dev.{side}", sentences[:50])
    (folder / "run.toml").write_text(_RUN, encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def measure(output: Path, commands: list[list[str]], lines: int, changes: Iterable[Change] = ()) -> list[str]:
    """Run commands at once that write to a folder, and have the changes come."""
    coming, began = list(changes), time.monotonic()
    output.mkdir(exist_ok=True)
    log = output.with_name(f"{output.name}.log")
    with log.open("wb") as messages:
        running = [
            subprocess.Popen([sys.executable, "-m", "transduce", *each], stdout=messages, stderr=messages)
            for each in commands
        ]
    sizes: list[int] = []
    while any(each.poll() is None for each in running):
        with suppress(OSError, ValueError):  # it has ended
            sizes.append(sum(resident_bytes("RssAnon", str(each.pid)) for each in running))
        if coming and len(list(output.glob("*.txt"))) >= coming[0][0]:
            coming.pop(0)[1]()
        time.sleep(_LOOK_SECONDS)
    seconds = time.monotonic() - began
    if any(each.returncode for each in running) or coming:
        sys.exit(f"{output.name} failed, or changes never came ({len(coming)}): see {log}\n{log.read_text()}")
    third = -(-len(sizes) // 3)
    most = [max(sizes[first : first + third]) for first in range(0, len(sizes), third)]
    return [output.name, f"{seconds:.1f}", f"{lines / seconds:,.1f}", ", ".join(f"{each / 1e6:.0f}" for each in most)]


def check_same(several: list[Path], one: Path, pattern: str) -> None:
    """Whether a folder has the files of several, and no others of such a name."""
    expected, found = [
        {str(path.relative_to(each)): path for each in folders for path in each.rglob(pattern) if path.is_file()}
        for folders in (several, [one])
    ]
    if apart := expected.keys() ^ found.keys():
        sys.exit(f"{one.name}: not the same files: {sorted(apart)}")
    if differing := sorted(name for name, path in found.items() if path.read_bytes() != expected[name].read_bytes()):
        sys.exit(f"{one.name}: {len(differing)} files differ: {differing}")


if __name__ == "__main__":
    main()
