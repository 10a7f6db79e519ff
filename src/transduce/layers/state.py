"""Keys and values that attention has already projected, kept while decoding goes on, and which of them are padding."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Side = Literal["left", "right"]


@final
@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values of one attention layer."""

    key: Float[Tensor, "batch heads keys d_k"]
    value: Float[Tensor, "batch heads keys d_v"]

    def append(self, newer: "KeyValues") -> "KeyValues":
        """The same rows with newer keys behind the older ones."""
        return KeyValues(
            torch.cat([self.key, newer.key], dim=2),
            torch.cat([self.value, newer.value], dim=2),
        )

    def select(self, rows: Int[Tensor, " rows"]) -> "KeyValues":
        """Row i of the result is row ``rows[i]``."""
        return KeyValues(self.key.index_select(0, rows), self.value.index_select(0, rows))

    def newest(self, keys: int) -> "KeyValues":
        """Only the last ``keys`` of every row."""
        return KeyValues(self.key[:, :, self.key.shape[2] - keys :], self.value[:, :, self.value.shape[2] - keys :])

    def join(self, other: "KeyValues", *, side: Side) -> "KeyValues":
        """The rows of both, the shorter padded with zeros on one side to the longer's keys."""
        keys = max(self.key.shape[2], other.key.shape[2])
        return KeyValues(
            torch.cat([_pad(self.key, keys, side), _pad(other.key, keys, side)]),
            torch.cat([_pad(self.value, keys, side), _pad(other.value, keys, side)]),
        )


def _pad(
    rows: Float[Tensor, "batch heads keys width"], keys: int, side: Side
) -> Float[Tensor, "batch heads padded width"]:
    missing = keys - rows.shape[2]
    return F.pad(rows, (0, 0, missing, 0) if side == "left" else (0, 0, 0, missing))


def recent_mask(lengths: Int[Tensor, " rows"], width: int) -> Bool[Tensor, "rows width"]:
    """The last ``lengths`` columns of every row: histories are padded on the left."""
    return torch.arange(width, device=lengths.device) >= width - lengths.unsqueeze(1)
