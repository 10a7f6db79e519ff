"""``transduce translate`` as a program: what its first line takes, and its memory over a long input.

    python -m benchmarks.streams "Tatoeba=MODEL,test.en.gz" ... [--starts 7] [--lines 200000] [--quick]

The first line is written to the command's standard input at once, and the pipe stays open. A base-size model with
random weights and each MODEL are started in int8, with ``--cache`` and without, beside a program that does the same by
CTranslate2, by turns; where our seconds go is measured in a process that does the same. Then the first MODEL
translates so many lines, its SOURCE's again and again, each time in a new order, while its resident set is looked at
once a second. Ends with status 1 where the last quarter of the lines holds noticeably more than the second. Writes
streams.md of benchmarks/results; --quick shows with the MODELs alone that all of it works, and writes nothing unless
--out says where.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.made_up_model import make_up_model, make_up_sentences
from benchmarks.page import circumstances, table
from benchmarks.streaming.memory import SHARES, Course, follow
from benchmarks.streaming.start import Start, measure_starts
from transduce.bundle import find_model
from transduce.data import read_lines

RESULT: Final = Path(__file__).parent / "results" / "streams.md"
VOCABULARY: Final = 18_000
# The last quarter of the lines may hold this much more than the second: what freed memory lies between moves by that.
FLAT: Final = 0.03
MEBIBYTE: Final = 2**20
QUICK: Final[dict[str, Any]] = {"starts": 1, "lines": 300, "every": 0.1, "size": None, "out": None}


def main() -> None:
    options = parse()
    tests = [read_test(text) for text in options.tests]
    lines = ["# The command translate", "", f"{circumstances()}.", ""]
    for name, (starts, parts) in measure_models(tests, options).items():
        lines += show_starts(name, starts, parts)
    print(*lines, sep="\n", flush=True)
    name, model, texts = tests[0]
    course = follow(model, texts, options.lines, options.every)
    shown = show_course(name, course)
    print(*shown, sep="\n")
    if options.out:
        options.out.write_text("\n".join([*lines, *shown]) + "\n", encoding="utf-8")
    if course.growth > FLAT:
        sys.exit(f"{name}: the last quarter of {options.lines:,} lines holds {course.growth:.1%} more than the second")


def read_test(text: str) -> tuple[str, Path, list[str]]:
    """NAME=MODEL,SOURCE as a name, a model directory, and the texts that there are."""
    name, _, rest = text.partition("=")
    model, source = map(Path, rest.split(","))
    return name, model, [each for each in read_lines(source) if each.strip()]


def measure_models(
    tests: list[tuple[str, Path, list[str]]], options: argparse.Namespace
) -> dict[str, tuple[dict[str, Start], dict[str, float]]]:
    """The made-up model's starts, where one is asked for, then the others', each with a text of its own; our parts."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.size is not None:
            made_up = Path(folder) / "model"
            make_up_model(options.size, options.vocabulary, made_up)
            (text,) = make_up_sentences(1, 7)
            name = f"{options.size}, random weights, {options.vocabulary:,} symbols"
            found[name] = measure_starts(made_up, text, options.starts)
        for name, model, texts in tests:
            own = Path(folder) / name  # a copy, as what is kept is kept beside a model
            shutil.copytree(find_model(model), own, ignore=shutil.ignore_patterns("cache"))
            found[name] = measure_starts(own, texts[0], options.starts)
    return found


def show_starts(name: str, starts: dict[str, Start], parts: dict[str, float]) -> list[str]:
    """A table of the programs, and our parts in a sentence."""
    rows = [
        [
            program,
            f"**{one.median:.2f}**",
            f"{max(one.seconds):.2f}",
            f"{statistics.median(one.resident) / MEBIBYTE:,.0f}",
        ]
        for program, one in starts.items()
    ]
    count = len(next(iter(starts.values())).seconds)
    spent = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
    return [
        f"{name}: from the start to the first line's translation; medians of {count} starts.",
        "",
        *table(["program", "first line after, s", "at most", "resident then (MiB)"], rows),
        "",
        f"Of these seconds, without `--cache`: {spent}.",
        "",
    ]


def show_course(name: str, course: Course) -> list[str]:
    """What the process held when so much was done."""
    rows = [[f"{share:.0%}", f"{share * course.lines:,.0f}", f"{course.at(share) / MEBIBYTE:,.0f}"] for share in SHARES]
    flat = "flat" if course.growth <= FLAT else "not flat"
    looks = len(course.samples)
    return [
        f"{name}: {course.lines:,} lines, {course.seconds:,.0f} seconds, {looks:,} looks at the resident set.",
        "",
        *table(["of the lines", "lines", "resident set (MiB)"], rows),
        "",
        f"The median of the last quarter is {course.growth:+.1%} beside the second's: {flat} (up to {FLAT:+.0%}).",
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", metavar="NAME=MODEL,SOURCE")
    parser.add_argument("--starts", type=int, default=7, help="of each model")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between looks at the memory")
    parser.add_argument("--size", default="base", help="of the model with random weights")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="of the model with random weights")
    parser.add_argument("--out", type=Path, default=RESULT, help="the page to write")
    parser.add_argument("--quick", action="store_true")
    if parser.parse_known_args()[0].quick:
        parser.set_defaults(**QUICK)
    return parser.parse_args()


if __name__ == "__main__":
    main()
