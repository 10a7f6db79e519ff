"""Dropout as a part of a model (sections 5.4 and 3.1)."""

from typing import final

from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.kernels import WHOLE, Dropped, dropout


@final
class Dropout(nn.Module):
    """One of a model's dropouts: the share that it leaves out in training, and its number.

    The number is its own in the model: what two dropouts leave out at one symbol has nothing in common.
    """

    def __init__(self, share: float, number: int) -> None:
        super().__init__()
        self.share, self.number = share, number

    def forward(
        self, x: Float[Tensor, "*positions width"], seeds: Int[Tensor, "*positions"] | None
    ) -> Float[Tensor, "*positions width"]:
        """What stays of ``x``; ``seeds`` are the symbols' own (``RaggedLayout.seeds``), else torch draws them."""
        return dropout(x, self.at(seeds))

    def at(self, seeds: Int[Tensor, "*positions"] | None) -> Dropped:
        """What is left out now, for those who leave it out as they compute something else."""
        return Dropped(self.share, seeds).at(self.number) if self.training and self.share else WHOLE

    def extra_repr(self) -> str:
        """What is printed of it."""
        return f"{self.share}, number={self.number}"
