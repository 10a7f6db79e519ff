"""A server over many requests and over too many: memory, refusals, and whether any answer is another one's.

    python -m benchmarks.serving_soak MODEL TEXTS [--requests 100000] [--minutes 10] [--sentences 2000] [--name NAME]

MODEL translates lines of TEXTS. First 64 clients send so many requests, one after the other, and the memory of the
server's processes is read as they do. Then requests are due at random at twice the rate that these had, for so many
minutes, from 2,000 clients. Every answer is compared with the offline one, bit for bit. Writes
benchmarks/results/serving-soak-NAME.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Final

from benchmarks.page import circumstances, table
from benchmarks.serving import Figures, RunningServer, load, run_offline, running
from transduce.data import read_lines

RESULTS: Final = Path(__file__).parent / "results"
CLIENTS: Final = 64
MOST_CLIENTS: Final = 2000  # more than may wait
PARTS: Final = 10
_PAGE: Final = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(options, Path(folder))
    page = "\n".join(
        ["# A long load", "", f"    python -m benchmarks.serving_soak {' '.join(sys.argv[1:])}", "", *lines, ""]
    )
    print(page)
    if options.name:
        (RESULTS / f"serving-soak-{options.name}.md").write_text(page, encoding="utf-8")


def measure(options: argparse.Namespace, folder: Path) -> list[str]:
    texts = list(dict.fromkeys(line for line in islice(read_lines(options.texts), options.sentences) if line.strip()))
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    pairs = list(zip(texts, run_offline(options.model, folder)["outputs"], strict=True))
    (folder / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    command = [sys.executable, "-m", "transduce", "serve", f"en-de={options.model}", "--port", "0"]
    with running(command) as server:
        address = server.address
        speed = float(load(address, folder, clients=CLIENTS, seconds=10)["per_second"])
        parts = []
        for _ in range(PARTS):
            seconds = options.requests / PARTS / speed
            parts.append((load(address, folder, clients=CLIENTS, seconds=seconds), memory(server)))
        capacity = sum(found["per_second"] for found, _ in parts) / PARTS
        much = load(address, folder, clients=MOST_CLIENTS, seconds=60 * options.minutes, rate=2 * capacity)
        busy = memory(server)
        after = load(address, folder, clients=CLIENTS, seconds=10)
        left = memory(server)
    rows = [[str(number), *row(found, used)] for number, (found, used) in enumerate(parts, 1)]
    rows.append([f"twice the capacity, {options.minutes:g} min", *row(much, busy)])
    rows.append(["after it", *row(after, left)])
    head = ["part", "answers", "a second", "p50 (ms)", "p99", "refused (429)", "other statuses", "other than offline"]
    return [
        f"{len(texts):,} sentences of {options.texts.name}; {CLIENTS} clients; {circumstances()}",
        "",
        *table([*head, "memory (MB): server", "model"], rows),
    ]


def row(found: Figures, used: list[float]) -> list[str]:
    """A part's figures."""
    statuses = {int(status): count for status, count in found["statuses"].items()}
    others = sum(count for status, count in statuses.items() if status not in (200, 429))
    return [
        f"{found['answers']:,}",
        f"{found['per_second']:.1f}",
        *(f"{1000 * found['seconds'][part]:.0f}" for part in ("p50", "p99")),
        f"{statuses.get(429, 0):,}",
        str(others),
        str(found["wrong"]),
        *(f"{each:.0f}" for each in used),
    ]


def memory(server: RunningServer) -> list[float]:
    """What the server's process and its model's have in memory, in megabytes."""
    found = subprocess.run(["pgrep", "-P", str(server.process)], capture_output=True, text=True, check=True)
    processes = [server.process, *map(int, found.stdout.split())]
    return [int(Path(f"/proc/{each}/statm").read_text().split()[1]) * _PAGE / 1e6 for each in processes]


if __name__ == "__main__":
    main()
