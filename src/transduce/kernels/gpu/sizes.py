"""What attention over a ragged batch is told of the batch and of the heads."""

from dataclasses import dataclass
from typing import Final, final

from torch import Tensor

from transduce.kernels.gpu.launch import power_of_two

_SMALLEST: Final = 16  # width that a matrix unit takes
_SHORT, _LONG = 32, 64
_WIDE: Final = 128  # heads from here on have smaller blocks, for the sake of registers


@final
@dataclass(frozen=True)
class Side:
    """Queries, or keys and values: where each of ``batch`` sequences begins and ends (batch + 1), and the longest."""

    boundaries: Tensor
    longest: int

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return len(self.boundaries) - 1


@final
@dataclass(frozen=True)
class Sizes:
    """Heads, how wide queries and keys, and values of each are, and what scores are multiplied with."""

    heads: int
    d_k: int
    d_v: int
    scale: float
    causal: bool

    @property
    def wide(self) -> tuple[int, int]:
        """The widths as blocks have them."""
        return max(_SMALLEST, power_of_two(self.d_k)), max(_SMALLEST, power_of_two(self.d_v))

    def block(self, *longest: int) -> int:
        """How many positions a program looks at together: of few sizes, for each is compiled apart."""
        return _LONG if max(longest) > _SHORT and max(self.wide) < _WIDE else _SHORT
