"""Whether our float32 search and CTranslate2's find the same translations, with the same scores; and where not, why.

    python -m benchmarks.agreement "Multi30k=MODEL,test2016.en.gz" ... [--lines N]

Each MODEL is exported and translates its SOURCE by both, in the ways of searching that both know; a line's length limit
is the same for both. Beside the differences of scores between the two stand those from the same sum computed in
float64, so that it is seen whose rounding they are. Every line that the two translate otherwise is printed with both
outputs and what each engine, forced, gives each of them. Writes agreement.md of benchmarks/results.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final, final

import torch

from benchmarks.decoders.exported import ExportedModel, Found, Ids
from benchmarks.page import circumstances, table
from transduce.bundle import Bundle, load_bundle
from transduce.config import LengthPenaltyKind, Stopping
from transduce.data import read_lines
from transduce.inference import Engine, Translation, Translator
from transduce.interop import export_ctranslate2
from transduce.models import Tokens
from transduce.search import LengthPenalty, score_targets

RESULT: Final = Path(__file__).parent / "results" / "agreement.md"
BATCH: Final = 32
# Closer than this, two outputs are equally good as far as float32 can tell.
ROUNDING: Final = 1e-3
HEAD: Final = (
    "",
    "search",
    "lines",
    "same translation",
    "largest difference of scores",
    "median",
    "ours from float64 at most",
    "CTranslate2's from float64 at most",
)


@final
@dataclass(frozen=True)
class Way:
    """A search that both know: without a penalty theirs stops as our ``exact``, with one as our ``full_beam``."""

    beam: int
    kind: LengthPenaltyKind
    alpha: float
    stopping: Stopping

    def __str__(self) -> str:
        if self.beam == 1:
            return "greedy"
        return f"beam {self.beam}, " + (
            "no penalty" if self.kind == "none" else f"{self.kind} {self.alpha}, {self.stopping}"
        )

    @property
    def penalty(self) -> LengthPenalty:
        """What both divide log-probabilities by."""
        return LengthPenalty(self.kind, self.alpha)


WAYS: Final = (Way(1, "none", 0.0, "exact"), Way(4, "none", 0.0, "exact"), Way(4, "marian", 1.0, "full_beam"))


@final
@dataclass(frozen=True)
class Line:
    """A source with both outputs and the scores that the two searches gave them, penalty included."""

    number: int
    text: str
    source: Ids
    mine: Found
    theirs: Found
    at_limit: bool

    @property
    def same(self) -> bool:
        """Whether both wrote the same."""
        return self.mine.ids == self.theirs.ids


@final
class Judge:
    """Forced scores of whatever anyone wrote: by our float32 model, by CTranslate2's, and in float64."""

    def __init__(self, bundle: Bundle, runtime: ExportedModel) -> None:
        self._special = bundle.tokenizers.special
        self._engine = Engine(bundle.model, self._special, "float32", torch.device("cpu"))
        self._runtime, self._exact = runtime, bundle.model.double()
        self.exact = cache(self._score_exactly)

    def ours(self, source: Ids, target: Ids) -> float:
        """By our float32 model."""
        (score,) = self._engine.score([source], [target])
        assert isinstance(score, float)
        return score

    def theirs(self, source: Ids, target: Ids) -> float:
        """By CTranslate2's float32 model."""
        return self._runtime.score(source, target)

    def _score_exactly(self, source: tuple[int, ...], target: tuple[int, ...]) -> float:
        begin, end = self._special.begin, self._special.end
        read, written, labels = (
            Tokens(torch.tensor([ids]), torch.tensor([len(ids)]))
            for ids in ((*source, end), (begin, *target), (*target, end))
        )
        return float(score_targets(self._exact, read, written, labels.ids))


def main() -> None:
    options = parse()
    rows: list[list[str]] = []
    differing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for place, test in enumerate(options.tests):
            for row, others in measure(test, Path(folder) / str(place), options.lines):
                rows.append(row)
                differing += others
                print(*row, *others, sep=" | ", flush=True)
    lines = ["# Our float32 search beside CTranslate2's", "", circumstances(), "", *table(list(HEAD), rows), ""]
    lines += ["Lines that the two translate otherwise:", "", *differing] if differing else ["No line differs."]
    print(*lines, sep="\n")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(test: str, exported: Path, count: int | None) -> Iterator[tuple[list[str], list[str]]]:
    """Of each way of searching, a row of the table and what is said of the lines that differ."""
    name, _, rest = test.partition("=")
    model, source = map(Path, rest.split(","))
    bundle = load_bundle(model)
    texts = [text for text in islice(read_lines(source), count) if text.strip()]
    export_ctranslate2(bundle, exported)
    ours = Translator(bundle, "float32", torch.device("cpu"))
    runtime = ExportedModel(exported, "float32", 1, torch.get_num_threads())
    judge = Judge(bundle, runtime)
    for way in WAYS:
        lines = list(translate(texts, way, ours, runtime, bundle.generation.max_extra_length))
        others = [each for each in lines if not each.same]
        decode = bundle.tokenizers.target.decode
        yield (
            [name, str(way), *compare(lines, way, judge)],
            [part for each in others for part in explain(each, f"{name}, {way}", way, judge, decode)],
        )


def translate(texts: Sequence[str], way: Way, ours: Translator, runtime: ExportedModel, extra: int) -> Iterator[Line]:
    """Both engines' outputs of every text."""
    sources = runtime.tokenizers.source.encode(texts)
    mine = ours.translate(
        list(texts),
        way.beam,
        way.alpha,
        length_penalty_kind=way.kind,
        stopping=way.stopping,
        max_extra_length=extra,
        first_number=None,
    )
    theirs = search_by_length(sources, way, runtime, extra)
    ids = runtime.tokenizers.target.vocabulary
    for row, (text, source, one) in enumerate(zip(texts, sources, mine, strict=True)):
        yield Line(row + 1, text, source, _found(one, ids), theirs[row], one.at_limit)


def _found(translation: Translation, ids: dict[str, int]) -> Found:
    return Found([ids[token] for token in translation.tokens], translation.score)


def search_by_length(sources: Sequence[Ids], way: Way, runtime: ExportedModel, extra: int) -> dict[int, Found]:
    """CTranslate2's best output of each source: sources of one length together, as its limit is one for a call."""
    found: dict[int, Found] = {}
    for length in sorted({len(source) for source in sources}):
        rows = [row for row, source in enumerate(sources) if len(source) == length]
        alpha = 0.0 if way.kind == "none" else way.alpha
        batch = [sources[row] for row in rows]
        results = runtime.search(batch, way.beam, length + 1 + extra, BATCH, alpha, scores=True)
        found |= zip(rows, results, strict=True)
    return found


def compare(lines: Sequence[Line], way: Way, judge: Judge) -> list[str]:
    """The cells of a row: how many are the same, and how far the scores of those are apart."""
    same = [each for each in lines if each.same]
    exact = [
        judge.exact(tuple(each.source), tuple(each.mine.ids)) / way.penalty(len(each.mine.ids) + 1) for each in same
    ]
    apart = [abs(each.mine.score - each.theirs.score) for each in same]
    errors = [
        [abs(found.score - score) for found, score in zip(several, exact, strict=True)]
        for several in ([each.mine for each in same], [each.theirs for each in same])
    ]
    figures = [max(apart), statistics.median(apart), *map(max, errors)] if same else [float("nan")] * 4
    share = f"{len(same):,} ({len(same) / len(lines):.1%})"
    return [f"{len(lines):,}", share, *(f"{figure:.6f}" for figure in figures)]


def explain(
    line: Line, place: str, way: Way, judge: Judge, decode: Callable[[Sequence[Ids]], list[str]]
) -> Iterator[str]:
    """A line that differs: both outputs, what either engine gives both of them when forced, and why they differ."""
    values = []
    yield f"- {place}, line {line.number}: {line.text}"
    for name, found in (("ours", line.mine), ("CTranslate2's", line.theirs)):
        penalty = way.penalty(len(found.ids) + 1)
        ours, theirs = (score(line.source, found.ids) / penalty for score in (judge.ours, judge.theirs))
        exact = judge.exact(tuple(line.source), tuple(found.ids)) / penalty
        values.append(exact)
        (text,) = decode([found.ids])
        yield f"  - {name}: {text} (ours gives it {ours:.4f}, CTranslate2 {theirs:.4f}, float64 {exact:.4f})"
    yield f"  - {reason(values[0] - values[1], at_limit=line.at_limit)}"


def reason(ahead: float, *, at_limit: bool) -> str:
    """Why two outputs differ, from how much the exact score of ours is ahead."""
    if at_limit:
        return "at the length limit, where ours has to end and CTranslate2's is cut"
    if abs(ahead) <= ROUNDING:
        return "a tie within rounding"
    if ahead > 0:
        return "ours is more probable: a hypothesis that CTranslate2's search left out"
    return "CTranslate2's is more probable: a hypothesis that our search left out"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", metavar="NAME=MODEL,SOURCE")
    parser.add_argument("--lines", type=int, help="the first of each source alone")
    parser.add_argument("--out", type=Path, default=RESULT, help="the page to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
