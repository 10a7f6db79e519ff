"""How much of the source has been looked at, and what it costs to have left some of it out."""

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@final
@dataclass(frozen=True)
class Coverage:
    """The attention that every row has paid to every position of its source; ``real`` says which are no padding."""

    paid: Float[Tensor, "rows source"]
    real: Bool[Tensor, "rows source"]

    @classmethod
    def empty(cls, lengths: Int[Tensor, " sentences"], beam: int, device: torch.device) -> "Coverage":
        """Nothing has been looked at yet."""
        width = torch.arange(int(lengths.max()), device=device)
        real = (width < lengths.to(device).unsqueeze(1)).repeat_interleave(beam, dim=0)
        return cls(torch.zeros(real.shape, device=device), real)

    def add(self, attention: Float[Tensor, "rows heads source"]) -> "Coverage":
        """One more step's weights, mean over the heads."""
        return replace(self, paid=self.paid + attention.float().mean(dim=1)[:, : self.paid.shape[1]])

    def reorder(self, rows: Int[Tensor, " kept"]) -> "Coverage":
        """Row i goes on from row ``rows[i]``."""
        return Coverage(self.paid[rows], self.real[rows])

    def shortfall(self) -> Float[Tensor, " rows"]:
        """sum_i log(min(sum_j p_ij, 1)) of every row: 0 where all of the source has been looked at, negative else."""
        logarithm = self.paid.clamp(min=torch.finfo(self.paid.dtype).tiny, max=1.0).log()
        return logarithm.masked_fill(~self.real, 0.0).sum(dim=1)
