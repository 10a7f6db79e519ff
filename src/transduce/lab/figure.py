"""A mean over trainings that differ by their seed alone, and how far these are apart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import final


@final
@dataclass(frozen=True)
class Figure:
    """A mean over seeds and their sample standard deviation, which one seed does not have."""

    mean: float
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Of one value or more."""
        mean = fmean(values)
        if len(values) < 2:
            return cls(mean, None)
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))

    def minus(self, other: "Figure") -> "Figure":
        """The difference of the means, and what the difference of one training of each spreads by."""
        known = self.spread is not None and other.spread is not None
        return Figure(self.mean - other.mean, math.hypot(self.spread or 0, other.spread or 0) if known else None)


def write_figure(figure: Figure | None, form: str) -> str:
    """For a cell of a table: the mean in that format, and the spread where there is one."""
    if figure is None:
        return ""
    return f"{figure.mean:{form}}" + (f" ± {figure.spread:{form.lstrip('+')}}" if figure.spread is not None else "")
