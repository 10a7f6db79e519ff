"""Local self-attention (section 4, "restricted"): time and memory linear in the length."""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.mask import Mask
from transduce.kernels.scores import Scoring, attend_plainly
from transduce.kernels.seeds import advance

# Products of smaller blocks would be faster to multiply than to start.
_SMALLEST_BLOCK: Final = 16


def block_size(window: int) -> int:
    """How many queries are looked at together: a block's queries see the keys of its own and the adjacent blocks."""
    return max(window, _SMALLEST_BLOCK)


def attend_locally(
    query: Float[Tensor, "batch heads length d_k"],
    key: Float[Tensor, "batch heads length d_k"],
    value: Float[Tensor, "batch heads length d_v"],
    mask: Mask,
    scoring: Scoring,
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "batch heads length d_v"]:
    """Attention of every position to those within ``mask.window``, which is given, without the others' scores.

    The sequence is cut into blocks at least as long as the window. A block's queries are compared with the keys of the
    block before, their own, and (where the mask is not causal) the one behind.
    """
    assert mask.window is not None
    batch, heads, length, _ = query.shape
    size, seeds = block_size(mask.window), dropped.rows(batch, heads, length, device=query.device)
    if seeds is not None:
        size = -(-size // 4) * 4  # four adjacent columns share a draw
    blocks = -(-length // size)
    missing = blocks * size - length
    behind = 0 if mask.causal else size
    width = size + size + behind
    columns = torch.arange(width, device=query.device) - size
    distance = columns - torch.arange(size, device=query.device).unsqueeze(1)

    def windows(x: Tensor) -> Tensor:
        """Rows of (batch x blocks), each with the keys that the block may see."""
        padded = F.pad(x, (0, 0, size, missing + behind)).unfold(2, width, size)
        return padded.permute(0, 2, 1, 4, 3).reshape(batch * blocks, heads, width, -1)

    queries = F.pad(query, (0, 0, 0, missing)).view(batch, heads, blocks, size, -1)
    real = mask.real if mask.real is not None else query.new_ones(1, length, dtype=torch.bool)
    real = F.pad(real, (size, missing + behind)).unfold(1, width, size)
    allowed = (mask.within(distance) & real.unsqueeze(2)).expand(batch, -1, -1, -1).flatten(0, 1)
    if seeds is not None:
        # A window's first draw is that of its first key.
        first = (torch.arange(blocks, device=query.device) - 1).mul_(size // 4).unsqueeze(1)
        seeds = advance(F.pad(seeds, (0, missing)).view(batch, heads, blocks, size), first)
        dropped = Dropped(dropped.share, seeds.transpose(1, 2).flatten(0, 1))
    result = attend_plainly(
        queries.transpose(1, 2).flatten(0, 1), windows(key), windows(value), allowed, distance, scoring, dropped
    )
    return result.view(batch, blocks, heads, size, -1).transpose(1, 2).flatten(2, 3)[:, :, :length]
