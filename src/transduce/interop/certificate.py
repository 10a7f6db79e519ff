"""The proof that another library computes a model as we do: of what comes in, and of what goes out."""

import hashlib
import json
import math
import platform
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, TypeVar, final

import torch

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig, TransduceError
from transduce.inference import Translation, Translator
from transduce.interop.layer_walk import Export, explain_difference
from transduce.interop.logits import Quantity, compare
from transduce.interop.reference import Ids, Pair, Reference, Scorer, library_errors
from transduce.interop.sentences import SENTENCES
from transduce.version import __version__

CERTIFICATE: Final = "certificate.json"
_BEAM: Final = 4
_EXTRA: Final = 50  # symbols that an output may have more than the longest source
# Random pairs, whose symbols no sentence may have: (source, target) lengths.
_RANDOM: Final = ((3, 5), (7, 2), (13, 17), (29, 23))
# Equal logits leave ties to rounding, and what a search leaves out to the search. More than this is neither.
_MOST_UNEXPLAINED: Final = 0.1
_MOST_NAMED: Final = 10
_LONG_ENOUGH, _TIMES = 0.5, 5  # seconds that a speed is measured, and translations at most

Reason = Literal["at the length limit", "a tie within rounding", "ours is more probable", "theirs is more probable"]
T = TypeVar("T")


@final
@dataclass(frozen=True)
class Differing:
    """A line that the two translate otherwise; by how much ours is ahead in log-probability says why.

    Its number is that among all sentences given, blank ones too: that of a file's line.
    """

    line: int
    ours: str
    theirs: str
    ahead: float
    reason: Reason


@final
@dataclass(frozen=True)
class Certificate:
    """What was compared, and what came of it: so many ``numbers`` that are ``compared``, logits or log-probabilities.

    Differences and the tolerance are of these. ``untranslated`` is why no translations were compared, where none were.
    """

    reference: str
    precision: str
    pairs: int
    compared: Quantity
    numbers: int
    largest_difference: float
    tolerance: float
    lines: int
    equal: int
    differing: tuple[Differing, ...]
    beam: int
    untranslated: str | None
    lines_per_second: Mapping[str, float]
    threads: int
    machine: str
    versions: Mapping[str, str]
    sha256: Mapping[str, Mapping[str, str]]

    def write(self, folder: Path) -> None:
        """Write ``certificate.json``."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        (folder / CERTIFICATE).write_text(text + "\n", encoding="utf-8")

    def describe(self) -> list[str]:
        """A few lines for people."""
        return [
            f"{self.compared}: {self.numbers:,} of {self.pairs} pairs differ by at most {self.largest_difference:.2g} "
            f"from {self.reference}'s in {self.precision} (rounding accounts for {self.tolerance:.2g})",
            *self._describe_translations(),
        ]

    def _describe_translations(self) -> list[str]:
        if self.untranslated is not None:
            return [f"translations: not compared: {self.untranslated}"]
        ours, theirs = self.lines_per_second.values()
        others = [f"  line {each.line}: {each.reason}" for each in self.differing[:_MOST_NAMED]]
        if len(self.differing) > _MOST_NAMED:
            others.append(f"  and {len(self.differing) - _MOST_NAMED:,} more, in {CERTIFICATE}")
        return [
            f"translations: {self.equal} of {self.lines} equal, beam {self.beam}",
            *others,
            f"speed: {ours:,.1f} sentences a second here, {theirs:,.1f} there, on {self.lines} sentences",
        ]


def certify(
    bundle: Bundle,
    reference: Reference | Scorer,
    sentences: Sequence[str] = SENTENCES,
    *,
    weights: Sequence[Path],
    export: Export | None = None,
) -> Certificate:
    """Compare a model with the same in another library; ``weights`` are our files of it.

    Logits are compared over the whole vocabulary, of pairs of the sentences with our translations of them and of random
    symbols: see ``tolerance`` for what is allowed. Translations are of text, and so compare tokenizers as well: where
    logits are the same, a tie may still break otherwise, or a search leave out what the other one finds, but not on
    more than a tenth of the lines. ``export`` brings a model of fewer layers to the same library: where that shows no
    layers, it is how the one at which the two part is found. Of a ``Scorer``, log-probabilities stand for logits.

    Raises:
        BadInputError: There is no sentence that the model can read.
        TransduceError: They differ beyond rounding, and the message says at which layer they part; or the library
            cannot compute it.
    """
    numbers, lines, sources = _readable(bundle, sentences)
    longest = max(map(len, sources)) + 1 + _EXTRA
    longest = min(longest, bundle.config.longest or longest)
    ours, our_seconds = _translate(bundle, lines, longest)
    pairs = [(source, _ids(bundle, each)) for source, each in zip(sources, ours, strict=True)]
    pairs += _random_pairs(bundle)
    compared = compare(bundle.model, bundle.tokenizers.special, reference, pairs)
    if not compared.same:
        where = explain_difference(bundle.model, bundle.tokenizers.special, reference, pairs, export)
        raise TransduceError(
            f"{reference.name} computes otherwise: {compared.quantity} differ by up to "
            f"{compared.largest_difference:.2g}, of which rounding accounts for {compared.tolerance:.2g}: {where} "
            f"(--no-prove writes it all the same)"
        )
    untranslated = reference.search_differs if isinstance(reference, Scorer) else None
    translated = 0 if untranslated is not None else len(lines)
    speeds, differing = {"transduce": len(lines) / our_seconds}, tuple[Differing, ...]()
    if translated:
        with library_errors(reference.name, *reference.weights):
            reference.translate(lines[:1], _BEAM, longest)
            theirs, their_seconds = _timed(lambda: reference.translate(lines, _BEAM, longest))
        speeds[reference.name] = len(lines) / their_seconds
        differing = tuple(_judge(bundle, numbers, lines, ours, theirs, compared.tolerance))
        _refuse_other_text(reference.name, differing, len(lines))
    return Certificate(
        reference=reference.name,
        precision=str(compared.format).removeprefix("torch."),
        pairs=len(pairs),
        compared=compared.quantity,
        numbers=compared.count,
        largest_difference=compared.largest_difference,
        tolerance=compared.tolerance,
        lines=translated,
        equal=translated - len(differing),
        differing=differing,
        beam=_BEAM,
        untranslated=untranslated,
        lines_per_second=speeds,
        threads=torch.get_num_threads(),
        machine=platform.processor() or platform.machine(),
        versions={"transduce": __version__, "torch": str(torch.__version__)} | dict(reference.versions),
        sha256={"transduce": _hash(weights), reference.name: _hash(reference.weights)},
    )


def _refuse_other_text(name: str, differing: Sequence[Differing], lines: int) -> None:
    """Let pass what searches may do otherwise.

    Raises:
        TransduceError: More lines differ than that.
    """
    unexplained = [each for each in differing if each.reason.endswith("more probable")]
    if len(unexplained) > _MOST_UNEXPLAINED * lines:
        first = unexplained[0]
        raise TransduceError(
            f"{name} translates {len(unexplained)} of {lines} lines otherwise, though it computes the same: text "
            f"becomes other symbols there, or they other text. The first is line {first.line}: {first.ours!r} here, "
            f"{first.theirs!r} there (--no-prove writes it all the same)"
        )


def _readable(bundle: Bundle, sentences: Sequence[str]) -> tuple[list[int], list[str], list[Ids]]:
    """The sentences that are not blank nor too long for the model's positions: numbers from 1, texts and ids."""
    there = [(number, line) for number, line in enumerate(sentences, 1) if line.strip()]
    encoded = bundle.tokenizers.source.encode([line for _, line in there])
    longest = bundle.config.longest or bundle.generation.max_source_length
    readable = [(*each, ids) for each, ids in zip(there, encoded, strict=True) if 0 < len(ids) < longest]
    if not readable:
        raise BadInputError(
            f"none of {len(sentences)} sentences to compare the models on is one that this model can read (fewer than "
            f"{longest:,} symbols): give others"
        )
    numbers, lines, sources = map(list, zip(*readable, strict=True))
    return numbers, lines, sources


def _translate(bundle: Bundle, lines: Sequence[str], longest: int) -> tuple[list[Translation], float]:
    """Ours, in float32 on the processor; and how many seconds they took."""
    # As a reference searches, whatever the model's own settings are.
    generation = GenerationConfig(beam_size=_BEAM, length_penalty_kind="none", max_length=longest - 1)
    translator = Translator(Bundle(bundle.model, bundle.tokenizers, generation), "float32", torch.device("cpu"))
    translator.translate(lines[:1], first_number=None)
    return _timed(lambda: translator.translate(list(lines), first_number=None))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and the seconds that it took at the best of some times: few lines take no time that can be told."""
    seconds: list[float] = []
    while not seconds or (sum(seconds) < _LONG_ENOUGH and len(seconds) < _TIMES):
        began = perf_counter()
        result = work()
        seconds.append(perf_counter() - began)
    return result, min(seconds)


def _ids(bundle: Bundle, translation: Translation) -> Ids:
    vocabulary = bundle.tokenizers.target.vocabulary
    return [vocabulary[token] for token in translation.tokens]


def _random_pairs(bundle: Bundle) -> list[Pair]:
    tokenizers, longest = bundle.tokenizers, bundle.config.longest or math.inf
    special = set(asdict(tokenizers.special).values())
    symbols = [
        [index for index in each.vocabulary.values() if index not in special]
        for each in (tokenizers.source, tokenizers.target)
    ]
    chance = random.Random(1)
    source, target = (
        [chance.choices(each, k=int(min(lengths[side], longest - 1))) for lengths in _RANDOM] if each else []
        for side, each in enumerate(symbols)
    )
    return list(zip(source, target, strict=False))


def _judge(
    bundle: Bundle,
    numbers: Sequence[int],
    lines: Sequence[str],
    ours: Sequence[Translation],
    theirs: Sequence[str],
    allowed: float,
) -> Iterator[Differing]:
    """The lines that differ, by their numbers, and why: from what our model gives both outputs."""
    rows = [row for row, each in enumerate(ours) if each.text != theirs[row]]
    scorer = Translator(bundle, "float32", torch.device("cpu"))
    several = [lines[row] for row in rows]
    scores = zip(
        scorer.score(several, [ours[row].text for row in rows], errors="return"),
        scorer.score(several, [theirs[row] for row in rows], errors="return"),
        strict=True,
    )
    for row, (one, other) in zip(rows, scores, strict=True):
        ahead = one - other
        # Each symbol's log-probability has the rounding of its logit and of the sum over all.
        within = 2 * allowed * (len(ours[row].tokens) + 1)
        reason: Reason
        if ours[row].at_limit:
            reason = "at the length limit"
        elif abs(ahead) <= within:
            reason = "a tie within rounding"
        else:
            reason = "ours is more probable" if ahead > 0 else "theirs is more probable"
        yield Differing(numbers[row], ours[row].text, theirs[row], ahead, reason)


def sha256(path: Path) -> str:
    """The hash of a file, as ``sha256sum`` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash(files: Sequence[Path]) -> dict[str, str]:
    return {path.name: sha256(path) for path in files}
