"""Masks: True where a query may look at a key."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch 1 longest"]:
    """Every query of a row may look at the row's first ``lengths`` keys: the others are padding."""
    positions = torch.arange(longest, device=lengths.device)
    return positions < lengths[:, None, None]


def causal_mask(queries: int, keys: int, device: torch.device) -> Bool[Tensor, "1 queries keys"]:
    """Each query may look at itself and what came before it (section 3.2.3).

    The queries are the last of the keys: with more keys than queries, the first ones are the past.
    """
    return torch.ones(1, queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def recent_mask(lengths: Int[Tensor, " rows"], width: int) -> Bool[Tensor, "rows 1 width"]:
    """Every query of a row may look at the row's last ``lengths`` keys: histories are padded on the left."""
    positions = torch.arange(width, device=lengths.device)
    return positions >= width - lengths[:, None, None]
