"""Bulk work on a Ray cluster whose machines come and go, against one process: the same files, bit for bit.

    python -m benchmarks.ray_cluster [--lines 3000] [--partitions 60] [--pairs 100000] [--size tiny] [--folder DIR]

Three machines of one core each are pretended on this one (``ray.cluster_utils.Cluster``). They translate so many lines:
when a third of the files stand, one machine is killed; when two thirds do, another joins. Then they prepare a corpus of
so many pairs. The model has random weights, and the text is invented. Fails where a file is missing, is there besides,
or differs. Prints lines a second and the most memory that the command itself had, the workers not counted, as a table.
What the commands say goes to NAME.log in the folder.
"""

import argparse
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
        write_partitions(folder / "in", options.lines, options.partitions)
        write_corpus(folder, options.pairs)
        translate = ["translate", str(folder / "model"), "--input", str(folder / "in"), "--precision", "float32"]
        translate += ["--threads", "1", "--output"]
        prepare = ["prepare", str(folder / "run.toml"), "--out"]
        machines = Cluster(initialize_head=True, head_node_args=_MACHINE)
        try:
            killed, _ = machines.add_node(**_MACHINE), machines.add_node(**_MACHINE)
            changes = [
                (options.partitions // 3, lambda: machines.remove_node(killed, allow_graceful=False)),
                (2 * options.partitions // 3, lambda: machines.add_node(**_MACHINE)),
            ]
            engine = ["--engine", "ray", "--address", machines.address]
            rows = [
                measure(folder / "translated by one process", translate, options.lines),
                measure(folder / "translated by three machines", translate, options.lines, engine, changes),
                measure(folder / "prepared by one process", prepare, options.pairs),
                measure(folder / "prepared by three machines", prepare, options.pairs, engine),
            ]
        finally:
            machines.shutdown()
        for what in ("translated", "prepared"):
            check_same(folder / f"{what} by one process", folder / f"{what} by three machines")
    print(f"{options.lines:,} lines in {options.partitions:,} files, model {options.size}; {options.pairs:,} pairs;")
    print(f"{circumstances()}", end="\n\n")
    print(*table(["", "seconds", "lines/s", "MB of the command"], rows), sep="\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--size", default="tiny", help="of benchmarks.peers.sizes")
    parser.add_argument("--folder", type=Path, help="where all of it is kept")
    return parser.parse_args()


def write_partitions(folder: Path, lines: int, partitions: int) -> None:
    """Text in files of nearly as many lines each."""
    folder.mkdir(parents=True)
    sentences = make_up_sentences(lines, 10)
    for number in range(partitions):
        write_lines(folder / f"{number:06}.txt", sentences[number::partitions])


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


def measure(
    output: Path, verb: list[str], lines: int, engine: Iterable[str] = (), changes: Iterable[Change] = ()
) -> list[str]:
    """Run a command that writes to a folder, and have the changes come."""
    coming, began = list(changes), time.monotonic()
    log = output.with_name(f"{output.name}.log")
    with log.open("wb") as messages:
        command = [sys.executable, "-m", "transduce", *verb, str(output), *engine]
        running = subprocess.Popen(command, stdout=messages, stderr=messages)
    most = 0  # not as wait4 has it, whose peak is this process's where that is larger
    while (status := running.poll()) is None:
        with suppress(OSError, ValueError):  # it has ended
            most = resident_bytes("VmHWM", str(running.pid))
        if coming and len(list(output.glob("*.txt"))) >= coming[0][0]:
            coming.pop(0)[1]()
        time.sleep(_LOOK_SECONDS)
    seconds = time.monotonic() - began
    if status or coming:
        sys.exit(
            f"{output.name}: status {status}, changes that never came: {len(coming)}; see {log}\n{log.read_text()}"
        )
    return [output.name, f"{seconds:.1f}", f"{lines / seconds:,.1f}", f"{most / 1e6:.0f}"]


def check_same(one: Path, other: Path) -> None:
    """Whether two folders have the same files."""
    names, others = (
        {str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()} for each in (one, other)
    )
    if names != others:
        sys.exit(f"{other.name}: not the same files: {sorted(names ^ others)}")
    if differing := sorted(name for name in names if (one / name).read_bytes() != (other / name).read_bytes()):
        sys.exit(f"{other.name}: {len(differing)} files differ: {differing}")


if __name__ == "__main__":
    main()
