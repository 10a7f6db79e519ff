"""Metrics that are a mean over lines, in the form that sacreBLEU's significance test resamples."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

from sacrebleu.metrics.base import Score as SacreScore
from sacrebleu.metrics.base import Signature

# Outputs and references in, one value a line out.
LineValues = Callable[[Sequence[str], Sequence[str]], Sequence[float]]


@final
class LineMean:
    """The mean of the values of all lines.

    It has what scoring and resampling call of ``sacrebleu.metrics.base.Metric``; the rest of that class counts n-grams.
    """

    def __init__(self, name: str, values: LineValues, details: Mapping[str, str]) -> None:
        self._name = name
        self._values = values
        self._details = details
        self._lines = 0

    def corpus_score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> SacreScore:
        """Score a whole output against one reference."""
        return self._aggregate_and_compute(self._extract_corpus_statistics(hypotheses, references))

    def get_signature(self) -> Signature:
        """How the last output was scored; the version is that of what gave the values."""
        signature = Signature({"num_refs": 1})
        for key, value in {"version": None, "lines": self._lines, **self._details}.items():
            signature.update(key, value)
        return signature

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[tuple[float, int]]:
        """A line's value and a one, so that the sum over a sample tells its mean."""
        self._lines = len(hypotheses)
        return [(value, 1) for value in self._values(hypotheses, references[0])]

    def _aggregate_and_compute(self, statistics: list[tuple[float, int]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*statistics, strict=True)])

    def _compute_score_from_stats(self, sums: Sequence[float]) -> SacreScore:
        total, lines = sums
        return SacreScore(self._name, float(total / lines))
