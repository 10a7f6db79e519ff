"""Which keys a query may attend to, without a matrix of queries and keys."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@final
@dataclass(frozen=True)
class Mask:
    """Which keys a query may look at.

    ``real`` marks the keys that are no padding (None: all are). ``causal``: a query may look at its own column and at
    those before it (section 3.2.3). ``window``: at columns at most so far from its own (local attention; section 4,
    "restricted"). The queries' columns are the last of the keys': with more keys than queries, the first ones are the
    past.
    """

    real: Bool[Tensor, "batch keys"] | None = None
    causal: bool = False
    window: int | None = None

    @property
    def joins_queries_and_keys(self) -> bool:
        """Whether queries differ in which keys they may look at."""
        return self.causal or self.window is not None

    def matrix(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#batch #queries keys"] | None:
        """True where a query may look at a key; None where all may look at all."""
        return self.part(range(keys - queries, keys), range(keys), device)

    def part(self, queries: range, keys: range, device: torch.device) -> Bool[Tensor, "#batch #queries keys"] | None:
        """The matrix of some columns' queries and some columns' keys."""
        real = None if self.real is None else self.real[:, None, keys.start : keys.stop]
        if not self.joins_queries_and_keys:
            return real
        own = torch.arange(queries.start, queries.stop, device=device).unsqueeze(1)
        within = self.within(torch.arange(keys.start, keys.stop, device=device) - own).unsqueeze(0)
        return within if real is None else within & real

    def within(self, distance: Int[Tensor, "queries keys"]) -> Bool[Tensor, "queries keys"]:
        """True where a key at this distance (its column less the query's) is inside the window, and causal."""
        window = self.window
        allowed = torch.ones_like(distance, dtype=torch.bool) if window is None else distance.abs() <= window
        return allowed & (distance <= 0) if self.causal else allowed
