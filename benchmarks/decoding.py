"""Our decoding beside what one could run the same model with: CTranslate2, and ``generate`` of transformers.

    python -m benchmarks.decoding "Tatoeba=MODEL,test.en.gz,test.de.gz" ...
                                  [--beams 4,1] [--rounds 3] [--without generate] [--quick]

Every MODEL translates its test set by every engine in a process of its own: ours in each number format, CTranslate2 in
float32 and int8 with 1 worker of N threads and N workers of one, in batches of 8 to 128, and generate in float32 and
bfloat16. All search alike: the same beam, no length penalty, until nothing open can be better than what has ended; no
shortlist. The grid is measured once, and printed; then each engine's best setting takes turns with the others'. Writes
decoding.md and decoding.json of benchmarks/results; --quick shows that all of it works on a few sentences, and writes
nothing unless --out says where. Of what is not installed, or has no such model, a line says so.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

import torch

from benchmarks.decoders.contest import Contest, Section, Setting, Task, fastest, measure_cost
from benchmarks.decoders.engines import Engine
from benchmarks.decoders.generate import can_generate
from benchmarks.decoders.report import show
from benchmarks.peers.machine import describe_machine, describe_versions
from transduce.bundle import find_model, load_bundle
from transduce.config import BadInputError, Precision
from transduce.data import read_pairs
from transduce.interop import export_ctranslate2

RESULTS: Final = Path(__file__).parent / "results"
CHOOSING: Final = 2  # rounds of all settings, by which each engine's is chosen: a slip would cost the peers alone
QUICK: Final[dict[str, Any]] = {"lines": 6, "rounds": 1, "batches": [4], "latency": 2, "out": None}
CPU: Final = torch.device("cpu")


def main() -> None:
    options = parse()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(options.tests):
            tests = open_tests(text, Path(folder) / str(number), options.lines)
            sections += measure(tests, options)
            print(*show(sections[-1:]), "", sep="\n", flush=True)
    lines = ["# Decoding beside its peers", "", describe_setting(options), "", *show(sections)]
    print(*lines, sep="\n")
    if options.out:
        write(options, lines, sections)


def open_tests(text: str, exported: Path, count: int | None) -> Task:
    """NAME=MODEL,SOURCE,REFERENCE as a test set, its model exported where CTranslate2 has such a model."""
    name, _, rest = text.partition("=")
    model, source, reference = map(Path, rest.split(","))
    pairs = list(islice(read_pairs(source, reference), count))
    try:
        if find_spec("ctranslate2") is not None:
            export_ctranslate2(load_bundle(model), exported)
    except BadInputError as error:
        print(f"{name}: {error}", file=sys.stderr)
    return Task(name, find_model(model), exported, [one for one, _ in pairs], [other for _, other in pairs])


def measure(tests: Task, options: argparse.Namespace) -> Iterator[Section]:
    """A section for each beam."""
    settings = list(all_settings(tests, options))
    engines = list(dict.fromkeys(setting.engine for setting in settings))
    for beam in options.beams:
        contest = Contest(tests, engines)
        try:
            contest.warm_up(beam)
            grid = contest.race(settings, beam, CHOOSING)
            best = contest.race([speed.setting for speed in fastest(grid)], beam, options.rounds)
            singles = contest.one_by_one(engines, beam, options.latency)
        finally:
            contest.close()
        costs = [measure_cost(tests, speed.setting, beam, options.rounds) for speed in best]
        yield Section(tests.name, beam, len(tests.sources), grid, best, singles, costs)


def all_settings(tests: Task, options: argparse.Namespace) -> Iterator[Setting]:
    """Ours first, then what is installed and can run this model."""
    threads = options.threads
    for precision in get_args(Precision):
        yield Setting(Engine("transduce", precision, threads, 1), 0)
    if tests.exported.exists():
        for precision in ("float32", "int8"):
            for workers in sorted({1, threads}):
                for batch in options.batches:
                    yield Setting(Engine("CTranslate2", precision, workers, threads // workers), batch)
    else:
        print(f"{tests.name}: without CTranslate2, which is missing or has no such model", file=sys.stderr)
    if "generate" in options.without:
        return
    if find_spec("transformers") is not None and can_generate(load_bundle(tests.model).config):
        for precision in ("float32", "bfloat16"):
            for batch in options.batches:
                yield Setting(Engine("generate", precision, 1, threads), batch)
    else:
        print(f"{tests.name}: without transformers, which is missing or has no such model", file=sys.stderr)


def describe_setting(options: argparse.Namespace) -> str:
    return (
        f"{describe_machine(CPU)}; {describe_versions(CPU)}, CTranslate2 {version_of('ctranslate2')}. "
        f"{options.rounds} rounds, all in turn in each; medians of the rounds, and of the rounds' ratios. "
        f"{options.threads} threads in all; no length penalty, exact stop, no shortlist."
    )


def version_of(package: str) -> str:
    return __import__(package).__version__ if find_spec(package) is not None else "not installed"


def write(options: argparse.Namespace, lines: list[str], sections: list[Section]) -> None:
    settings = {name: getattr(options, name) for name in ("threads", "rounds", "beams", "batches", "latency", "lines")}
    record = {
        "machine": describe_machine(CPU),
        "versions": f"{describe_versions(CPU)}, CTranslate2 {version_of('ctranslate2')}",
        **settings,
        "sections": [asdict(section) for section in sections],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "decoding.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.out / "decoding.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", metavar="NAME=MODEL,SOURCE,REFERENCE")
    parser.add_argument("--beams", type=numbers, default=[4, 1])
    parser.add_argument("--batches", type=numbers, default=[8, 16, 32, 64, 128])
    parser.add_argument("--threads", type=int, default=2, help="in all: of one worker, or of as many workers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, help="the first of each test set alone")
    parser.add_argument("--latency", type=int, default=200, metavar="LINES", help="translated one by one")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--without", action="append", default=[], choices=["generate"], help="which takes most time")
    parser.add_argument("--quick", action="store_true")
    if parser.parse_known_args()[0].quick:
        parser.set_defaults(**QUICK)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
