"""The power of a size that a cost grows with."""

import math
import statistics
from collections.abc import Mapping


def exponent(costs: Mapping[int, float], tail: int) -> float:
    """The a in cost ~ size^a over the largest ``tail`` sizes: the slope of the line through their logarithms."""
    sizes = sorted(costs)[-tail:]
    logs = [math.log(size) for size in sizes]
    return statistics.linear_regression(logs, [math.log(costs[size]) for size in sizes]).slope
