"""What narrower number formats cost: BLEU of the same models on the same lines in float32, bfloat16 and int8.

    python -m benchmarks.number_formats "Multi30k=MODEL,test2016.en.gz,test2016.de.gz" ... [--beams 4,1] [--lines N]

A single test set says little: a few sentences that come out otherwise move its BLEU by a tenth, to either side. So
beside every difference stands how many lines came out otherwise, and below them all their mean and its standard error,
over as many models and test sets as are given. Writes number_formats.md of benchmarks/results.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, final

from benchmarks.page import circumstances, table
from transduce.config import Precision
from transduce.data import read_pairs
from transduce.evaluation import corpus_score
from transduce.inference import load

RESULT: Final = Path(__file__).parent / "results" / "number_formats.md"
NARROW: Final[tuple[Precision, ...]] = ("bfloat16", "int8")


@final
@dataclass(frozen=True)
class Comparison:
    """A test set translated in float32 and in a narrower format: BLEU of each, and lines that came out otherwise."""

    precision: Precision
    exact: float
    narrow: float
    otherwise: int

    @property
    def difference(self) -> float:
        """What the narrower format gains, in BLEU."""
        return self.narrow - self.exact


def translate(model: Path, sources: list[str], beam: int, precision: Precision) -> list[str]:
    """By the model's own length penalty."""
    found = load(model, precision, "cpu").translate(sources, beam_size=beam, first_number=None)
    return [translation.text for translation in found]


def compare(model: Path, pairs: Sequence[tuple[str, str]], beam: int) -> Iterator[Comparison]:
    """Each narrower format beside float32."""
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    formats: tuple[Precision, ...] = ("float32", *NARROW)
    texts = {each: translate(model, sources, beam, each) for each in formats}
    bleu = {each: corpus_score("bleu", found, references).value for each, found in texts.items()}
    for each in NARROW:
        otherwise = sum(a != b for a, b in zip(texts["float32"], texts[each], strict=True))
        yield Comparison(each, bleu["float32"], bleu[each], otherwise)


def summarize(found: Sequence[Comparison]) -> list[str]:
    """Of each format, the mean of all differences with its standard error."""
    lines = []
    for precision in NARROW:
        all_ = [each.difference for each in found if each.precision == precision]
        error = statistics.stdev(all_) / math.sqrt(len(all_)) if len(all_) > 1 else math.nan
        within = sum(abs(round(each, 2)) <= 0.1 for each in all_)
        mean = f"{statistics.mean(all_):+.3f} ± {error:.3f} BLEU"
        lines.append(f"- {precision}: {mean}, mean of {len(all_)} comparisons, of which {within} are within 0.1.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", metavar="NAME=MODEL,SOURCE,REFERENCE")
    parser.add_argument("--beams", type=lambda text: [int(each) for each in text.split(",")], default=[4, 1])
    parser.add_argument("--lines", type=int, help="the first of each test set alone")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    rows, found = [], []
    for test in options.tests:
        name, _, rest = test.partition("=")
        model, source, reference = map(Path, rest.split(","))
        pairs = list(islice(read_pairs(source, reference), options.lines))
        for beam in options.beams:
            for one in compare(model, pairs, beam):
                found.append(one)
                cells = [f"{one.exact:.2f}", f"{one.narrow:.2f}", f"{one.difference:+.2f}", f"{one.otherwise:,}"]
                rows.append([name, f"{len(pairs):,}", str(beam), one.precision, *cells])
                print(*rows[-1], sep="  ", flush=True)
    head = ["", "lines", "beam", "format", "BLEU in float32", "BLEU", "difference", "lines that came out otherwise"]
    page = ["# What number formats cost", "", circumstances(), "", *table(head, rows), "", *summarize(found)]
    print(*page, sep="\n")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
