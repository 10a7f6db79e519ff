"""Bracketing F1 of trees that are written as text, in the form that sacreBLEU's significance test resamples."""

from collections.abc import Mapping, Sequence
from typing import final

from sacrebleu.metrics.base import Score as SacreScore
from sacrebleu.metrics.base import Signature

from transduce.config import BadInputError
from transduce.evaluation.brackets import SHORT, BracketCounts, count_brackets
from transduce.text import BadTreeError, Tree, clean, parse_brackets


@final
class BracketF1:
    """F1 of the brackets of all trees, an output and a reference a line; an empty output has no bracket right.

    By the rules of evalb and its COLLINS.prm, to which functions of phrases mean nothing either. As ``LineMean``, it
    has what scoring and resampling call of ``sacrebleu.metrics.base.Metric``.
    """

    def __init__(self) -> None:
        self._counts: list[BracketCounts] = []

    def corpus_score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> SacreScore:
        """Score a whole output against one reference.

        Raises:
            BadInputError: A line is no tree, or an output is over other words than its reference.
        """
        return self._aggregate_and_compute(self._extract_corpus_statistics(hypotheses, references))

    def get_signature(self) -> Signature:
        """How outputs are scored."""
        signature = Signature({"num_refs": 1})
        for key, value in {"version": None, "rules": "COLLINS.prm", "sentences": len(self._counts)}.items():
            signature.update(key, value)
        return signature

    @property
    def details(self) -> Mapping[str, float]:
        """What else was counted of the last output: shares in 0 to 100, and how many sentences have no tree."""
        counts = sum(self._counts, BracketCounts())
        short = sum((each for each in self._counts if each.length <= SHORT), BracketCounts())
        return {
            "precision": counts.precision,
            "recall": counts.recall,
            "exact": counts.exact_match,
            "no_crossing": counts.no_crossing,
            "tagging": counts.tagging_accuracy,
            f"f1_to_{SHORT}_words": short.f1,
            "failures": counts.failures,
        }

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[tuple[int, int, int]]:
        """A sentence's brackets: those that are right, the output's and the reference's."""
        self._counts = [
            _count(number, output, reference)
            for number, (output, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1)
        ]
        return [(each.matched.total(), each.output.total(), each.gold.total()) for each in self._counts]

    def _aggregate_and_compute(self, statistics: list[tuple[int, int, int]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*statistics, strict=True)])

    def _compute_score_from_stats(self, sums: Sequence[float]) -> SacreScore:
        matched, output, gold = sums
        return SacreScore("brackets", float(200 * matched / (output + gold)) if output + gold else 0.0)


def _count(number: int, output: str, reference: str) -> BracketCounts:
    gold = _read(reference, f"reference {number:,}")
    if gold is None:
        raise BadInputError(f"reference {number:,}: is empty: it has to be a tree")
    try:
        return count_brackets(gold, _read(output, f"output {number:,}"))
    except BadInputError as error:
        raise BadInputError(f"output {number:,}: {error}") from error


def _read(text: str, name: str) -> Tree | None:
    if not text.strip():
        return None
    try:
        return clean(parse_brackets(text))
    except BadTreeError as error:
        raise BadInputError(f"{name}: {error}") from error
