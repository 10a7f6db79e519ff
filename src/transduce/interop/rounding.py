"""How far apart rounding alone brings two computations of one model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Each sum's error is below lambda sqrt(n) u with probability 1 - 2 exp(-lambda^2 / 2) (Higham and Mary 2019): with 8,
# fewer than one sum in 10^13 is beyond. It also covers what the bound leaves out: other exponential functions, and
# layers that make an error larger.
_CONFIDENCE: Final = 8


def count_terms(modules: Iterable[nn.Module]) -> int:
    """How many products are added up on the way through modules: the inputs of every matrix, one behind the other."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return sum(math.prod(parameter.shape[1:]) for parameter in parameters if parameter.ndim > 1)


@final
@dataclass(frozen=True)
class Numbers:
    """How large numbers are, as far as rounding goes: the sum of their squares, and how many there are."""

    squares: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, numbers: Float[Tensor, "*any"]) -> "Numbers":
        """Those of a tensor."""
        return cls(float(numbers.double().square().sum()), numbers.numel())

    def __add__(self, other: "Numbers") -> "Numbers":
        return Numbers(self.squares + other.squares, self.count + other.count)


def tolerance(computed: Numbers, terms: int, kind: torch.dtype) -> float:
    """The largest difference of two of these numbers that rounding accounts for: 8 u sqrt(terms) rms(computed).

    u is the unit roundoff of the number format: 2^-24 in float32. Roundings are as good as independent, so that the
    relative error behind sums of n terms in all is about u sqrt(n) (Higham and Mary 2019, "A new approach to
    probabilistic rounding error analysis"); an error in a random direction moves each number by its share of their root
    mean square.
    """
    size = math.sqrt(computed.squares / max(1, computed.count))
    return _CONFIDENCE * torch.finfo(kind).eps / 2 * math.sqrt(terms) * size
