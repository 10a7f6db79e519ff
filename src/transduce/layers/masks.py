"""Which columns hold symbols: True for symbols, False for padding."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    """The first ``lengths`` columns of every row."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


def recent_mask(lengths: Int[Tensor, " rows"], width: int) -> Bool[Tensor, "rows width"]:
    """The last ``lengths`` columns of every row: histories are padded on the left."""
    return torch.arange(width, device=lengths.device) >= width - lengths.unsqueeze(1)
