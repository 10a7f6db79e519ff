"""Our server under the load of 1 to 256 clients, beside offline translation and a plain server of CTranslate2.

    python -m benchmarks.serving MODEL TEXTS [--clients 1,8,64,256] [--seconds 20] [--rounds 3] [--sentences 2000]
                                 [--size SIZE] [--name NAME]

MODEL translates lines of TEXTS; with a SIZE (``benchmarks.peers.sizes``), a model of random weights does with MODEL's
tokenizers, whose outputs are as long as their sources. All search alike: with the model's beam, without a length
penalty, until nothing open can win, as CTranslate2 has it. Servers and clients are processes of their own, on the same
cores, over loopback; the clients' share of a processor is printed. First every number of clients sends as fast as it is
answered; then requests are due at random, at 50%, 80% and 95% of what the server did with 64 clients, and count from
when they were due. Both servers take turns, and so does offline translation of the same sentences, in one call and one
by one. An answer that is not the offline one counts as wrong: ours has to be the same. Writes
benchmarks/results/serving-NAME.md.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

import torch

from benchmarks.page import circumstances, table
from benchmarks.peers.sizes import SIZES, make_config
from transduce.bundle import find_model, load_bundle, load_settings, save_bundle
from transduce.config import GenerationChanges
from transduce.data import read_lines
from transduce.interop import export_ctranslate2
from transduce.models import build

RESULTS: Final = Path(__file__).parent / "results"
SHARES: Final = (0.5, 0.8, 0.95)
ONE_BY_ONE: Final = 100
Figures = dict[str, Any]

OFFLINE: Final = """
import json, sys, time
from transduce.inference import load
model, texts, alone = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
translator, as_served = load(model), {"paragraphs": True, "first_number": None}
translator.translate(texts[:64], **as_served)
begin = time.perf_counter()
outputs = [each.text for each in translator.translate(texts, **as_served)]
together = time.perf_counter() - begin
seconds = []
for text in texts[:alone]:
    begin = time.perf_counter()
    translator.translate(text, **as_served)
    seconds.append(time.perf_counter() - begin)
alone = sorted(seconds)[len(seconds) // 2]
print(json.dumps({"outputs": outputs, "per_second": len(texts) / together, "alone": alone}))
"""


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(options, Path(folder))
    page = "\n".join(["# Serving", "", f"    python -m benchmarks.serving {' '.join(sys.argv[1:])}", "", *lines, ""])
    print(page)
    if options.name:
        (RESULTS / f"serving-{options.name}.md").write_text(page, encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--clients", default="1,8,64,256")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--name")
    return parser.parse_args()


def measure(options: argparse.Namespace, folder: Path) -> list[str]:
    texts = list(dict.fromkeys(line for line in islice(read_lines(options.texts), options.sentences) if line.strip()))
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    model = folder / "model"
    write_model(options.model, options.size, model)
    export_ctranslate2(load_bundle(model), folder / "exported")
    offline = [run_offline(model, folder)]
    pairs = list(zip(texts, offline[0]["outputs"], strict=True))
    (folder / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    clients = [int(each) for each in options.clients.split(",")]
    closed: dict[tuple[str, int], list[Figures]] = {}
    with serve_ours(model) as ours, serve_plainly(model, folder / "exported") as plain:
        servers = {"transduce serve": ours, "CTranslate2, plain server": plain}
        for address in servers.values():
            load(address, folder, clients=8, seconds=3)
        for _ in range(options.rounds):
            for number in clients:
                for name, address in servers.items():
                    found = load(address, folder, clients=number, seconds=options.seconds)
                    closed.setdefault((name, number), []).append(found)
            offline.append(run_offline(model, folder))
        most = middle(closed["transduce serve", 64 if 64 in clients else clients[-1]], "per_second")
        opened = [
            (name, share, load(address, folder, clients=256, seconds=options.seconds, rate=share * most))
            for share in SHARES
            for name, address in servers.items()
        ]
    named = options.model.name if options.size is None else f"{options.size} size"
    return [
        f"{named}: {len(texts):,} sentences of {options.texts.name}, int8; {circumstances()}",
        "",
        *show_closed(closed, offline[1:]),
        "",
        *show_open(opened),
    ]


def show_closed(closed: dict[tuple[str, int], list[Figures]], offline: list[Figures]) -> list[str]:
    """Each server with each number of clients, beside offline translation."""
    together, alone = middle(offline, "per_second"), middle(offline, "alone")
    rows = [
        [
            name,
            str(clients),
            f"{(speed := middle(found, 'per_second')):.1f}",
            f"{speed / together:.2f}",
            *(
                f"{1000 * statistics.median(each['seconds'][share] for each in found):.0f}"
                for share in ("p50", "p95", "p99")
            ),
            str(sum(each["wrong"] for each in found)),
            str(sum(count for each in found for status, count in each["statuses"].items() if status != "200")),
            f"{100 * middle(found, 'own_share'):.0f}%",
        ]
        for (name, clients), found in sorted(closed.items(), key=lambda each: (each[0][1], each[0][0]))
    ]
    head = ["server", "clients", "answers a second", "of offline", "p50 (ms)", "p95", "p99"]
    return [
        f"Offline, all in one call: {together:.1f} sentences a second; one by one: {1000 * alone:.1f} ms (medians).",
        "",
        *table([*head, "other than offline", "refused", "clients' processor"], rows),
    ]


def show_open(opened: list[tuple[str, float, Figures]]) -> list[str]:
    """Both servers where requests come at random."""
    rows = [
        [
            name,
            f"{100 * share:.0f}%",
            f"{found['per_second']:.1f}",
            *(f"{1000 * found['seconds'][part]:.0f}" for part in ("p50", "p95", "p99")),
            str(sum(count for status, count in found["statuses"].items() if status != "200")),
            f"{100 * found['own_share']:.0f}%",
        ]
        for name, share, found in opened
    ]
    return [
        "Requests at random times, from when each was due, at a share of what `transduce serve` does for 64 clients:",
        "",
        *table(["server", "rate", "answers a second", "p50 (ms)", "p95", "p99", "refused", "clients' processor"], rows),
    ]


def middle(found: list[Figures], name: str) -> float:
    """The median of a figure."""
    return float(statistics.median(each[name] for each in found))


def write_model(path: Path, size: str | None, to: Path) -> None:
    """The model as all of them search with it."""
    bundle = load_bundle(path)
    model, changes = bundle.model, GenerationChanges(length_penalty_kind="none")
    if size is not None:
        torch.manual_seed(1)
        model = build(make_config(size, bundle.tokenizers.target.vocab_size)).eval()
        changes["max_extra_length"] = 0
    save_bundle(replace(bundle, model=model, generation=bundle.generation.changed(changes)), to)


def run_offline(model: Path, folder: Path) -> Figures:
    """All sentences in one call, and some one by one."""
    arguments = [str(model), str(folder / "texts.json"), str(ONE_BY_ONE)]
    done = subprocess.run([sys.executable, "-c", OFFLINE, *arguments], capture_output=True, text=True, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def load(address: str, folder: Path, *, clients: int, seconds: float, rate: float | None = None) -> Figures:
    """What clients saw of a server."""
    command = [sys.executable, "-m", "benchmarks.load_generator", address, str(folder / "pairs.json")]
    command += ["--clients", str(clients), "--seconds", str(seconds)]
    command += [] if rate is None else ["--rate", str(rate)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


@contextmanager
def serve_ours(model: Path) -> Iterator[str]:
    """``transduce serve``, with a queue that refuses none of the clients."""
    command = ["-m", "transduce", "serve", f"en-de={model}", "--port", "0", "--max-wait", "60"]
    with running([sys.executable, *command]) as server:
        yield server.address


@contextmanager
def serve_plainly(model: Path, exported: Path) -> Iterator[str]:
    """CTranslate2 behind a plain server, with as many workers as there are threads."""
    _, generation = load_settings(model)
    arguments = [*map(str, (find_model(model), exported, generation.beam_size, torch.get_num_threads()))]
    with running([sys.executable, "-m", "benchmarks.peers.plain_server", *arguments]) as server:
        yield server.address


@final
@dataclass(frozen=True)
class RunningServer:
    """Where it listens, and the number of its process."""

    address: str
    process: int


@contextmanager
def running(command: list[str]) -> Iterator[RunningServer]:
    """A server until the block ends; it says its address on standard error."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if (found := re.search(r"http://\S+", line)) is not None:
                break
        else:
            raise RuntimeError("".join(said))
        time.sleep(1)
        yield RunningServer(found[0], process.pid)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
