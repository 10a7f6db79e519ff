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


@final
@dataclass(frozen=True)
class RunningSum:
    """What average attention keeps of each row: the sum of all that it has read, and how many symbols these are."""

    total: Float[Tensor, "batch model"]
    read: Int[Tensor, " batch"]

    @classmethod
    def empty(cls, like: Float[Tensor, "batch model"]) -> "RunningSum":
        """Nothing has been read yet, by as many rows."""
        return cls(torch.zeros_like(widen(like)), torch.zeros(len(like), dtype=torch.long, device=like.device))

    def append(self, newer: Float[Tensor, "batch model"]) -> "RunningSum":
        """The same rows with a symbol more."""
        return RunningSum(self.total + newer, self.read + 1)

    def mean(self) -> Float[Tensor, "batch model"]:
        """Of what each row has read."""
        return self.total / self.read.unsqueeze(1)

    def select(self, rows: Int[Tensor, " rows"]) -> "RunningSum":
        """Row i of the result is row ``rows[i]``."""
        return RunningSum(self.total.index_select(0, rows), self.read.index_select(0, rows))

    def newest(self, keys: int) -> "RunningSum":
        """All of it: a sum has no columns that could be more than are needed."""
        return self


Past = KeyValues | RunningSum


def join_past(one: Past, other: Past) -> Past:
    """The histories of both, which end at the last column; both are of one kind."""
    if isinstance(one, KeyValues):
        assert isinstance(other, KeyValues)
        return one.join(other, side="left")
    assert isinstance(other, RunningSum)
    return RunningSum(torch.cat([one.total, other.total]), torch.cat([one.read, other.read]))


def widen(x: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions model"]:
    """In a number format to add up many numbers in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _pad(
    rows: Float[Tensor, "batch heads keys width"], keys: int, side: Side
) -> Float[Tensor, "batch heads padded width"]:
    missing = keys - rows.shape[2]
    return F.pad(rows, (0, 0, missing, 0) if side == "left" else (0, 0, 0, missing))


def recent_mask(lengths: Int[Tensor, " rows"], width: int) -> Bool[Tensor, "rows width"]:
    """The last ``lengths`` columns of every row: histories are padded on the left."""
    return torch.arange(width, device=lengths.device) >= width - lengths.unsqueeze(1)
