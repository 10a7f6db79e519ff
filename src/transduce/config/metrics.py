"""Metrics as data: what dev, reports, curves, the command line and the best checkpoint know of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, final

MetricKey = Literal["bleu", "chrf", "ter", "exact", "comet", "brackets", "loss", "perplexity"]

_LARGE: Final = 1e6  # from here on, decimals say nothing
_LARGEST: Final = 709.0  # its exponential is just below the largest number


@final
@dataclass(frozen=True)
class Metric:
    """A metric, apart from how it is computed.

    ``name`` is for people; files, options and settings call it by its key. ``decimals`` is how many are shown.
    ``needs`` is what it is computed from: the "probabilities" that a model gives the references, a model's "outputs"
    beside the references, those with a "trained" model that judges them, or a parser's "trees" beside a treebank's.
    """

    name: str
    better: Literal["higher", "lower"]
    decimals: int
    needs: Literal["probabilities", "outputs", "trained", "trees"]

    def rank(self, value: float) -> float:
        """A value as a number of which more is better."""
        return value if self.better == "higher" else -value

    def show(self, value: float) -> str:
        """A value for people."""
        return f"{value:.{self.decimals}f}" if abs(value) < _LARGE else f"{value:.3g}"


METRICS: Final[Mapping[MetricKey, Metric]] = MappingProxyType(
    {
        "bleu": Metric("BLEU", "higher", 2, "outputs"),
        "chrf": Metric("chrF", "higher", 2, "outputs"),
        "ter": Metric("TER", "lower", 2, "outputs"),
        "exact": Metric("exact match", "higher", 2, "outputs"),
        "comet": Metric("COMET", "higher", 4, "trained"),  # most of its values lie between 0 and 1
        "brackets": Metric("bracketing F1", "higher", 2, "trees"),
        "loss": Metric("loss", "lower", 3, "probabilities"),  # nats per target token, without label smoothing
        "perplexity": Metric("perplexity", "lower", 2, "probabilities"),
    }
)


def perplexity(loss: float) -> float:
    """Perplexity of a loss in nats per target token; at most 8e307, as JSON has no infinity."""
    return math.exp(min(loss, _LARGEST))
