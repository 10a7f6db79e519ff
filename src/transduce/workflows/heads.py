"""What each attention head of a model does over a corpus, and what BLEU it costs to mute it."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

from transduce.bundle import load_bundle
from transduce.config import BadInputError, Precision
from transduce.config.attention import AttentionHead
from transduce.config.head_roles import HeadRole
from transduce.data import read_lines
from transduce.evaluation import Score, make_scorer, paired_bootstrap, score_with
from transduce.inference import HeadStatistics, Translator
from transduce.inference.alignment import read_pharaoh
from transduce.inference.arguments import read_device
from transduce.inference.translation import warn_of_failures
from transduce.models import heads_of
from transduce.workflows.examples import Examples, read_examples
from transduce.workflows.muting import without_each

_PAIRS_AT_A_TIME: Final = 256

# Shows how far something is: how many there are, and of what. The function moves it by one.
Bar = Callable[[int, str], AbstractContextManager[Callable[[], None]]]


@final
@dataclass(frozen=True)
class HeadCorpus:
    """Parallel text, and the words that belong together in it where that is known (in Pharaoh form, line by line)."""

    examples: Examples
    alignments: list[str] | None = None


@final
@dataclass(frozen=True)
class Muting:
    """Each head is muted in turn, and the first ``sentences`` are translated; ``tokenize`` is BLEU's."""

    sentences: int
    beam_size: int | None = None
    tokenize: str = "13a"


@final
@dataclass(frozen=True)
class HeadReport:
    """A row for each head over ``pairs`` sentence pairs, and the BLEU of ``sentences`` of them with all heads."""

    roles: Sequence[HeadRole]
    pairs: int
    whole: Score | None = None
    sentences: int = 0


def read_head_corpus(source: Path, target: Path, alignment: Path | None) -> HeadCorpus:
    """The corpus of two files, or of three.

    Raises:
        BadInputError: A file cannot be read, or they differ in length, or are empty; or an alignment is none, or not of
            its pair.
    """
    examples = read_examples(source, target)
    if alignment is None:
        return HeadCorpus(examples)
    lines, pairs = list(read_lines(alignment)), len(examples.sources)
    if len(lines) != pairs:
        raise BadInputError(f"{alignment}: has {len(lines):,} lines for {pairs:,} pairs: line i is of pair i")
    for number, (line, *pair) in enumerate(zip(lines, examples.sources, examples.references, strict=True), start=1):
        try:
            read_pharaoh(line, *pair)
        except BadInputError as error:
            raise BadInputError(f"{alignment} line {number:,}: {error}") from error
    return HeadCorpus(examples, lines)


def measure_model(
    model: Path,
    corpus: HeadCorpus,
    muting: Muting | None,
    bar: Bar,
    *,
    max_source_length: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
) -> HeadReport:
    """Measure every attention head of a model, and mute each where that is asked for.

    A pair that cannot be measured is left out, and a warning names it.

    Raises:
        BadInputError: It is no model, or one without attention; an alignment is none, or not of its pair; no pair can
            be measured; or there is no such tokenizer for BLEU.
    """
    bundle, place = load_bundle(model), read_device(device)
    heads = heads_of(bundle.model)
    if not heads:
        raise BadInputError(
            f"{model}: heads measures those of a Transformer, and this is architecture {bundle.config.architecture!r}: "
            f"transduce attention shows what such a model attends to, if it does"
        )
    if muting is not None:
        make_scorer("bleu", muting.tokenize)  # an unknown tokenizer is named before anything is done
    translator = Translator(bundle, precision, place)
    statistics = _measure(translator, corpus, max_source_length, bar)
    failures = [f"pair {index + 1:,}: {error}: left out" for index, error in statistics.left_out.items()]
    if not statistics.pairs:
        raise BadInputError(f"no pair can be measured: {failures[0]}")
    warn_of_failures(failures)
    # Average attention has weights, but no heads.
    report = HeadReport([role for role in statistics.roles() if role.head in heads], statistics.pairs)
    if muting is None:
        return report
    muted = without_each(bundle, [role.head for role in report.roles], precision, place)
    return _mute(report, translator, muted, corpus.examples, muting, bar)


def _measure(translator: Translator, corpus: HeadCorpus, limit: int | None, bar: Bar) -> HeadStatistics:
    sides = corpus.examples.sources, corpus.examples.references
    statistics = HeadStatistics()
    with bar(len(corpus.examples.sources), "pairs") as advance:
        for start in range(0, len(corpus.examples.sources), _PAIRS_AT_A_TIME):
            group = slice(start, start + _PAIRS_AT_A_TIME)
            statistics += translator.measure_heads(
                *(side[group] for side in sides),
                alignments=None if corpus.alignments is None else corpus.alignments[group],
                first_number=start + 1,
                max_source_length=limit,
            )
            for _ in sides[0][group]:
                advance()
    return statistics


def _mute(
    report: HeadReport,
    translator: Translator,
    muted: Iterable[tuple[AttentionHead, Translator]],
    examples: Examples,
    muting: Muting,
    bar: Bar,
) -> HeadReport:
    """The report with what the absence of each head costs, in the order of its rows."""
    sources, references = (side[: muting.sentences] for side in (examples.sources, examples.references))

    def outputs(translator: Translator) -> list[str]:
        found = translator.translate(sources, muting.beam_size, first_number=None, errors="return")
        return [each.text for each in found]

    whole, scorer = outputs(translator), make_scorer("bleu", muting.tokenize)
    roles = []
    with bar(len(report.roles), "heads") as advance:
        for role, (_, without) in zip(report.roles, muted, strict=True):
            (comparison,) = paired_bootstrap({"bleu": scorer}, references, outputs(without), whole)
            loss = comparison.theirs.value - comparison.ours.value
            roles.append(replace(role, bleu_loss=loss, p_value=comparison.p_value))
            advance()
    return replace(report, roles=roles, whole=score_with(scorer, "bleu", whole, references), sentences=len(sources))
