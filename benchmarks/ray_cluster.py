"""Bulk translation on a Ray cluster whose machines come and go, against one process: the same files, bit for bit.

    python -m benchmarks.ray_cluster [--lines 3000] [--partitions 60] [--size tiny] [--folder DIR]

Three machines of one core each are pretended on this one (``ray.cluster_utils.Cluster``). When a third of the files
stand, one machine is killed; when two thirds do, another joins. The model has random weights, and the text is invented.
Fails where a file is missing, is there besides, or differs. Prints lines a second and the most memory that the command
itself had, the workers not counted, as a table. What the commands say goes to NAME.log in the folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.made_up_model import make_up_model, make_up_sentences
from benchmarks.page import circumstances, table

_MACHINE: Final = {"num_cpus": 1, "object_store_memory": 80_000_000}
_LOOK_SECONDS: Final = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--size", default="tiny", help="of benchmarks.peers.sizes")
    parser.add_argument("--folder", type=Path, help="where all of it is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        make_up_model(options.size, 2000, folder / "model")
        write_partitions(folder / "in", options.lines, options.partitions)
        rows = [measure("one process", folder, options.lines, [], iter(()))]
        rows.append(measure_cluster(folder, options.lines, options.partitions))
        check_same(folder / "one process", folder / "three machines")
    print(
        f"{options.lines:,} lines in {options.partitions:,} files, model {options.size}; {circumstances()}", end="\n\n"
    )
    print(*table(["", "seconds", "lines/s", "MB of the command"], rows), sep="\n")


def write_partitions(folder: Path, lines: int, partitions: int) -> None:
    """Text in files of nearly as many lines each."""
    folder.mkdir(parents=True)
    sentences = make_up_sentences(lines, 10)
    for number in range(partitions):
        part = sentences[number::partitions]
        (folder / f"{number:06}.txt").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")


def measure_cluster(folder: Path, lines: int, partitions: int) -> list[str]:
    """Translate on three machines, of which one is killed, and which one joins."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - an extra

    machines = Cluster(initialize_head=True, head_node_args=_MACHINE)
    try:
        killed, _ = machines.add_node(**_MACHINE), machines.add_node(**_MACHINE)
        changes = iter(
            [
                (partitions // 3, lambda: machines.remove_node(killed, allow_graceful=False)),
                (2 * partitions // 3, lambda: machines.add_node(**_MACHINE)),
            ]
        )
        engine = ["--engine", "ray", "--address", machines.address]
        return measure("three machines", folder, lines, engine, changes)
    finally:
        machines.shutdown()


def measure(
    name: str, folder: Path, lines: int, engine: list[str], changes: Iterator[tuple[int, Callable[[], object]]]
) -> list[str]:
    """Run the command; as soon as so many partitions stand, the next of the changes comes."""
    output = folder / name
    files = ["--input", str(folder / "in"), "--output", str(output)]
    verb = ["translate", str(folder / "model"), *files, "--precision", "float32", "--threads", "1", *engine]
    began = time.monotonic()
    with (folder / f"{name}.log").open("wb") as messages:
        running = subprocess.Popen([sys.executable, "-m", "transduce", *verb], stderr=messages)
    change = next(changes, None)
    while not (ended := os.wait4(running.pid, os.WNOHANG))[0]:
        if change is not None and len(list(output.glob("*.txt"))) >= change[0]:
            change[1]()
            change = next(changes, None)
        time.sleep(_LOOK_SECONDS)
    seconds, (_, status, used) = time.monotonic() - began, ended
    if status or change is not None:
        log = (folder / f"{name}.log").read_text(encoding="utf-8")[-2000:]
        sys.exit(f"{name}: status {os.waitstatus_to_exitcode(status)}, change left: {change is not None}\n{log}")
    return [name, f"{seconds:.1f}", f"{lines / seconds:.1f}", f"{used.ru_maxrss / 1000:.0f}"]


def check_same(one: Path, other: Path) -> None:
    """Whether two folders have the same files, but for the time that each was written."""
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (one, other)]
    if names[0] != names[1]:
        sys.exit(f"not the same files: {sorted(set(names[0]) ^ set(names[1]))}")
    differing = [name for name in names[0] if (one / name).read_bytes() != (other / name).read_bytes()]
    if differing:
        sys.exit(f"{len(differing)} files differ: {differing}")


if __name__ == "__main__":
    main()
