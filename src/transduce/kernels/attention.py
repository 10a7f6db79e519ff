"""Attention: a weighted sum of the values, the weights given by a comparison of queries and keys (section 3.2)."""

from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.local import attend_locally, block_size
from transduce.kernels.mask import Mask
from transduce.kernels.scores import PRODUCT, Scoring, attend_plainly, compare, weigh

# More weights than this are over 256 MiB in float32, which each layer would keep for its backward pass. Chunks take
# about as long then where a sequence is long, and longer where there are many short ones (docs/performance.md).
_WEIGHTS: Final = 2**26
# From so many queries and keys on, PyTorch's own function takes less time than the plain formula on CPUs, in float32:
# never in bfloat16, in steps, or in short batches (docs/notebook/attention.md).
_LONG: Final = 200


def attend(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask,
    scoring: Scoring = PRODUCT,
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "batch heads queries d_v"]:
    """dropout(softmax(score(Q, K))) V, each query over the keys that ``mask`` lets it see.

    The score is Q K^T where ``scoring`` says no more. ``dropped`` says which weights dropout leaves out; its rows are
    (batch, queries). The way of computing follows from the sizes; the result does not.
    """
    batch, heads, queries, _ = query.shape
    keys, dropped = key.shape[2], dropped.heads(heads, (batch, queries), query.device)
    if mask.window is not None and queries < keys:
        # Keys before the first query's window are seen by none.
        seen = min(keys, queries + mask.window)
        key, value, mask = key[:, :, keys - seen :], value[:, :, keys - seen :], _last(mask, seen)
        keys = seen
    if mask.window is not None and queries == keys and keys > 3 * block_size(mask.window):
        return attend_locally(query, key, value, mask, scoring, dropped)
    large = batch * heads * queries * keys > _WEIGHTS
    # A matrix of queries and keys may be as large as the weights: chunks make none.
    if _is_faster_in_torch(query, key, scoring, dropped) and not (large and mask.joins_queries_and_keys):
        return _attend_in_torch(query, key, value, mask, scoring.scale)
    if scoring.plain and large:
        return attend_in_chunks(scoring.turn(query), key, value, mask, dropped)
    allowed = mask.matrix(queries, keys, query.device)
    return attend_plainly(query, key, value, allowed, _distance(query, key, scoring), scoring, dropped)


def _is_faster_in_torch(query: Tensor, key: Tensor, scoring: Scoring, dropped: Dropped) -> bool:
    """Whether PyTorch's own function computes the same, and sooner."""
    if query.device.type != "cpu" or min(query.shape[2], key.shape[2]) < _LONG:
        return False
    # Its dropout would draw by chance, and not by each row's seed.
    computes_it = scoring.plain and dropped.share == 0
    return computes_it and query.dtype == key.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _attend_in_torch(query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float) -> Tensor:
    """By scaled_dot_product_attention, which makes no matrix of the weights."""
    if mask.joins_queries_and_keys and mask.real is None and mask.window is None and query.shape[2] == key.shape[2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    allowed = mask.matrix(query.shape[2], key.shape[2], query.device)
    allowed = None if allowed is None else allowed.unsqueeze(1)
    return F.scaled_dot_product_attention(query, key, value, allowed, scale=scale)


def attention_weights(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    mask: Mask,
    scoring: Scoring = PRODUCT,
) -> Float[Tensor, "batch heads queries keys"]:
    """What ``attend`` weighs the values by: for people to look at, off the fast path."""
    allowed = mask.matrix(query.shape[2], key.shape[2], query.device)
    return weigh(compare(query, key, _distance(query, key, scoring), scoring), allowed)


def _distance(query: Tensor, key: Tensor, scoring: Scoring) -> Int[Tensor, "queries keys"] | None:
    """Each key's column less the query's, where positions are relative."""
    if scoring.relative is None:
        return None
    columns = torch.arange(key.shape[2], device=query.device)
    return columns - columns[key.shape[2] - query.shape[2] :].unsqueeze(1)


def _last(mask: Mask, keys: int) -> Mask:
    return mask if mask.real is None else replace(mask, real=mask.real[:, mask.real.shape[1] - keys :])
