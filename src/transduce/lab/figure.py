"""Means over trainings that differ by their seed alone, how far these are apart, and what differs significantly."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, final

# Student's t of 1, 2, ... degrees of freedom, within which it is 95 times of 100; of more than 30 as of 30.
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_LARGE: Final = 1e6  # from here on, decimals say nothing


@final
@dataclass(frozen=True)
class Figure:
    """A mean over seeds and their sample standard deviation, which one seed does not have."""

    mean: float
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Of one value or more; the perplexity of a training that diverged is as large as a number can be."""
        number = len(values)
        mean = math.fsum(value / number for value in values)  # their sum, and squares, would overflow
        if number < 2:
            return cls(mean, None)
        return cls(mean, math.hypot(*(value - mean for value in values)) / math.sqrt(number - 1))


@final
@dataclass(frozen=True)
class Difference:
    """Of two means, and half of its 95% confidence interval, of which one seed each knows nothing."""

    mean: float
    interval: float | None

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not reach zero; an infinite one does not: one diverged, where the other did not."""
        return self.interval is not None and abs(self.mean) > self.interval


@final
@dataclass(frozen=True)
class Deviation:
    """What one training's value varies by with its seed, taken to be the same for all models of a table.

    Each of them has few seeds: its square is the mean of their variances, weighted by their degrees of freedom.
    ``degrees`` of all together are 0 where no model has two seeds.
    """

    value: float
    degrees: int

    @classmethod
    def of(cls, groups: Iterable[Sequence[float]]) -> "Deviation":
        """Of the values of each model; those of one that has diverged are left out."""
        squares, degrees = 0.0, 0
        for group in groups:
            if len(group) > 1 and all(map(math.isfinite, group)):
                mean = fmean(group)
                squares += math.fsum((value - mean) ** 2 for value in group)
                degrees += len(group) - 1
        return cls(math.sqrt(squares / max(1, degrees)), degrees)

    def compare(self, ours: Sequence[float], base: Sequence[float]) -> Difference:
        """Two models by their values: the standard error of a difference is s sqrt(1/n + 1/n_base) for n seeds.

        The interval is as many of them to either side as Student's t says for all degrees of freedom together: 12.7
        where two seeds of one model are all there is.
        """
        difference = fmean(ours) - fmean(base)
        if not self.degrees:
            return Difference(difference, None)
        surely = _STUDENT[min(self.degrees, len(_STUDENT)) - 1]
        return Difference(difference, surely * self.value * math.sqrt(1 / len(ours) + 1 / len(base)))


def write_figure(figure: Figure | None, form: str) -> str:
    """For a cell of a table: the mean in that format, and the spread where there is one; of large ones, few digits."""
    if figure is None:
        return ""
    return " ± ".join(
        f"{value:{form if abs(value) < _LARGE else '.3g'}}"
        for value in (figure.mean, figure.spread)
        if value is not None
    )


def write_difference(difference: Difference | None, form: str) -> str:
    """For a cell of a table: with its interval where that is known, and in bold where it is significant."""
    if difference is None:
        return ""
    mean = f"{difference.mean:{form}}"
    interval = "" if difference.interval is None else f" ± {difference.interval:{form.lstrip('+')}}"
    return (f"**{mean}**" if difference.is_significant else mean) + interval
