"""Our decoding on one CUDA device beside what one could run the same model with: ``generate`` and CTranslate2.

    python -m benchmarks.gpu_decoding ["Tatoeba=MODEL,SOURCE,REFERENCE" ...] [--sizes base,big]
                                      [--quick --device cpu]

Models with random weights, whose sources and outputs have about 25 tokens, and those that are named. All search alike,
as in ``benchmarks.decoding``, each in a process of its own, in bfloat16 (--formats bfloat16,float32: and in float32);
all settings take turns in every round. ``generate`` and CTranslate2 run where they are installed, and a line says where
not. Sized for less than eight minutes where ``generate`` has 14 sentences a second at base size. Writes
gpu_decoding.md and .json of benchmarks/results; --quick shows, on a processor too, that all of it works, and writes
nothing unless --out says where.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

import torch

from benchmarks.decoders.contest import CENTILES, Contest, Setting, Single, Speed, Task, fastest
from benchmarks.decoders.engines import Engine
from benchmarks.decoders.generate import can_generate
from benchmarks.decoders.process import EngineProcess
from benchmarks.decoding import numbers, open_tests, version_of
from benchmarks.made_up_model import make_up_model, make_up_sentences
from benchmarks.page import table
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.sizes import parse_sizes
from transduce.bundle import load_bundle

RESULTS: Final = Path(__file__).parent / "results"
MEBIBYTE: Final = 2**20
WORDS: Final = 10  # of an invented sentence: two or three tokens each
QUICK: Final[dict[str, Any]] = {
    "sizes": ["tiny"],
    "formats": ["float32"],
    "vocabulary": 400,
    "lines": 4,
    "rounds": 1,
    "batches": [4],
    "latency": 1,
    "out": None,
}
HEAD: Final = (
    "model",
    "beam",
    "",
    "batch",
    "sentences a second",
    "output tokens a second",
    "our best is faster by",
    *(f"one sentence {name}, ms" for name in CENTILES),
    "memory (MiB)",
    "BLEU",
)


@final
@dataclass(frozen=True)
class Row:
    """An engine at its best batch size; ``memory`` is what it took of the device in all settings so far, in bytes."""

    name: str
    beam: int
    speed: Speed
    single: Single
    memory: int
    lines: int
    quality: bool

    def show(self, ours: Speed) -> list[str]:
        """Its cells."""
        speed = self.speed
        return [
            self.name,
            str(self.beam),
            str(speed.setting.engine),
            str(speed.setting.batch or "its own"),
            f"{speed.median:.1f}",
            f"{speed.tokens_a_second(self.lines):,.0f}",
            f"{ours.over(speed):.2f}",
            *(f"{self.single.milliseconds[name]:.1f}" for name in CENTILES),
            f"{self.memory / MEBIBYTE:,.0f}",
            f"{speed.bleu:.2f}" if self.quality else "",
        ]


def main() -> None:
    options = parse()
    rows: list[list[str]] = []
    found: list[Row] = []
    device = torch.device(options.device)
    lines = ["# Decoding on one device beside its peers", "", describe_setting(device, options), ""]
    print(*lines, *table(list(HEAD), []), sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for tests, quality in open_all(options, Path(folder)):
            for several in measure(tests, quality, options):
                best = max(
                    (one.speed for one in several if one.speed.setting.engine.family == "transduce"), key=_median
                )
                found += several
                rows += (shown := [one.show(best) for one in several])
                print(*table([], shown)[2:], sep="\n", flush=True)
    if options.out:
        record = {"setting": lines[2], "rows": [asdict(one) for one in found]}
        write(options.out, [*lines, *table(list(HEAD), rows)], record)


def _median(speed: Speed) -> float:
    return speed.median


def open_all(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Task, bool]]:
    """Every model with its texts, and whether what it writes means anything."""
    for size in options.sizes:
        path, texts = folder / size, folder / f"{size}.txt"
        make_up_model(size, options.vocabulary, path)
        texts.write_text("".join(f"{each}\n" for each in make_up_sentences(options.lines or 128, WORDS)))
        name = f"{size}, random weights"
        yield open_tests(f"{name}={path},{texts},{texts}", folder / f"{size} exported", options.lines), False
    for place, text in enumerate(options.tests):
        yield open_tests(text, folder / str(place), options.lines), True


def measure(tests: Task, quality: bool, options: argparse.Namespace) -> Iterator[list[Row]]:
    """Of each beam, every engine at its best."""
    settings = list(all_settings(tests, options))
    engines = list(dict.fromkeys(setting.engine for setting in settings))
    contest = Contest(tests, engines)
    try:
        for beam in options.beams:
            contest.warm_up(beam)
            contest.race(settings, beam, 1)  # sizes that come for the first time are slower, on GPUs above all
            best = fastest(contest.race(settings, beam, options.rounds))
            singles = {one.engine: one for one in contest.one_by_one(engines, beam, options.latency)}
            rows = []
            for each in best:
                engine = each.setting.engine
                memory, lines = contest.device_bytes(engine), len(tests.sources)
                rows.append(Row(tests.name, beam, each, singles[engine], memory, lines, quality))
            yield rows
    finally:
        contest.close()


def all_settings(tests: Task, options: argparse.Namespace) -> Iterator[Setting]:
    """Ours first, then what is installed and can run this model."""
    threads, device = torch.get_num_threads(), options.device
    for precision in options.formats:
        yield Setting(Engine("transduce", precision, threads, 1, device), 0)
    others = {
        "CTranslate2": tests.exported.exists()
        and (device == "cpu" or starts(Engine("CTranslate2", "float32", 1, threads, device), tests)),
        "generate": find_spec("transformers") is not None and can_generate(load_bundle(tests.model).config),
    }
    for family, there in others.items():
        if not there:
            print(f"{tests.name}: without {family}, which is missing, fails here or has no such model", flush=True)
            continue
        for precision in options.formats:
            for batch in options.batches:
                yield Setting(Engine(family, precision, 1, threads, device), batch)  # type: ignore[arg-type]


def starts(engine: Engine, tests: Task) -> bool:
    """Whether an engine translates at all: CTranslate2 says only then that the cuBLAS it was built for is missing."""
    try:
        with EngineProcess(engine, tests.model, tests.exported) as process:
            process.translate(tests.sources[:1], 1, 1)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return False
    return True


def describe_setting(device: torch.device, options: argparse.Namespace) -> str:
    return (
        f"{describe_machine(device)}; {describe_versions(device)}, CTranslate2 {version_of('ctranslate2')}. "
        f"{options.rounds} rounds, all in turn in each; medians of the rounds, and of the rounds' ratios. No length "
        f"penalty, exact stop, no shortlist. Memory is what the engine's process took of the device in all its batches."
    )


def write(folder: Path, lines: list[str], record: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_decoding.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "gpu_decoding.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="NAME=MODEL,SOURCE,REFERENCE")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sizes", type=parse_sizes, default=["base", "big"], help="of models with random weights")
    parser.add_argument("--vocabulary", type=int, default=37_000, help="at most, of models with random weights")
    parser.add_argument("--formats", type=names, default=["bfloat16"])
    parser.add_argument("--beams", type=numbers, default=[4, 1])
    parser.add_argument("--batches", type=numbers, default=[64, 128], help="of the others; ours chooses its own")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lines", type=int, help="the first of each test set alone; as many are invented (128)")
    parser.add_argument("--latency", type=int, default=20, metavar="LINES", help="translated one by one")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_known_args()[0].quick
    parser.set_defaults(**QUICK if quick else {"out": RESULTS})
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here: --quick --device cpu shows that the rest works")
    return options


def names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
