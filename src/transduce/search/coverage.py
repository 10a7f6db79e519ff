"""How much of the source has been looked at, and what it costs to have left some of it out."""

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


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
        # Either may have columns for a source that has left.
        paid, more = self.paid.clone(), attention.float().mean(dim=1)[:, : self.paid.shape[1]]
        paid[:, : more.shape[1]] += more
        return replace(self, paid=paid)

    def reorder(self, rows: Int[Tensor, " kept"]) -> "Coverage":
        """Row i goes on from row ``rows[i]``."""
        return Coverage(self.paid[rows], self.real[rows])

    def admit(self, other: "Coverage") -> "Coverage":
        """The rows of another come in behind these."""
        width = max(self.paid.shape[1], other.paid.shape[1])
        paid, real = (
            torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts])
            for parts in ((self.paid, other.paid), (self.real, other.real))
        )
        return Coverage(paid, real)

    def shortfall(self) -> Float[Tensor, " rows"]:
        """sum_i log(min(sum_j p_ij, 1)) of every row: 0 where all of the source has been looked at, negative else.

        A weight of 0, which a window or the k best leave everywhere else, would make it infinite: it counts as the
        smallest number there is, whose logarithm is -87.
        """
        logarithm = self.paid.clamp(min=torch.finfo(self.paid.dtype).tiny, max=1.0).log()
        return logarithm.masked_fill(~self.real, 0.0).sum(dim=1)
