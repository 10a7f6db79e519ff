"""Scales of charts: which numbers stand at an axis, and where a value lies between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

_SPREAD: Final = 4.0  # times the smallest value, from which on a logarithmic scale shows more
_STEPS: Final = 5  # between the numbers at an axis, or about so many

_ROUNDING: Final = 1e-9  # of a number: what is so near is equal
_SMALLEST: Final = 1e-100


@final
@dataclass(frozen=True)
class Scale:
    """The values from the first tick to the last one."""

    ticks: Sequence[float]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high, value = (math.log(x) if self.logarithmic else x for x in (self.ticks[0], self.ticks[-1], value))
        return (value - low) / (high - low)


def make_scale(
    values: Sequence[float], *, from_zero: bool = False, logarithmic: bool = False, whole: bool = False
) -> Scale:
    """A scale that all values lie on.

    It is ``logarithmic`` only where they are positive and differ enough; else it may begin ``from_zero``, and have
    ``whole`` numbers only.
    """
    low, high = min(values), max(values)
    if logarithmic and low > _SMALLEST and high > _SPREAD * low:
        return Scale(_powers(low, high), logarithmic=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    largest = max(abs(low), abs(high))
    if high - low <= max(_ROUNDING * largest, _SMALLEST):  # as good as equal
        room = largest / 2 if largest > _SMALLEST else 1.0
        low, high = low if from_zero else low - room, high + room
    step = max(_round_up((high - low) / _STEPS), float(whole))
    first = math.floor(low / step + _ROUNDING)
    last = max(first + 1, math.ceil(high / step - _ROUNDING))
    return Scale([number * step for number in range(first, last + 1)])


def brief(value: float) -> str:
    """A number where there is little room: 0.0005, 12, 3.5k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _powers(low: float, high: float) -> list[float]:
    """Of ..., 0.1, 0.2, 0.5, 1, 2, 5, 10, ... those around all values, and between them; powers of ten of many."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    grid = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    first, last = max(x for x in grid if x <= low), min(x for x in grid if x >= high)
    between = [x for x in grid if first < x < last]
    if len(between) > _STEPS:
        tens = [x for x in between if x in grid[::3]]
        between = tens[:: math.ceil(len(tens) / _STEPS)]
    return [first, *between, last]


def _round_up(value: float) -> float:
    """The next of ..., 0.1, 0.2, 0.5, 1, 2, 5, 10, ..."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * (1 - _ROUNDING))
