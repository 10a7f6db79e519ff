"""Attention in O(sqrt n) memory beyond its inputs and outputs (Rabe and Staats 2021)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.mask import Mask

# A constant number of queries at a time, and so many times sqrt(n) keys: as many weights as the publication's own code
# holds (1,024 by sqrt(n)), in squarer blocks, which are multiplied faster and go over their sums less often.
_QUERIES: Final = 256
_KEYS: Final = 4


def attend_in_chunks(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask,
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "batch heads queries d_v"]:
    """dropout(softmax(Q K^T)) V without ever holding all weights.

    Forward, a chunk of queries goes over the keys chunk by chunk, with the largest score so far and the sum of
    exponentials under it. Backward, each chunk's weights are computed again from the queries' log-sums.
    """
    device = query.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    with torch.autocast(device, enabled=False):
        seeds = dropped.rows(*query.shape[:3], device=query.device)
        result: Tensor = _Chunked.apply(query, key, value, seeds, mask, dropped)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _Chunks:
    """The parts that a matrix of scores is computed in."""

    query: Tensor
    key: Tensor
    seeds: Tensor | None
    mask: Mask
    dropped: Dropped

    @property
    def exact(self) -> torch.dtype:
        """What exponentials and sums are held in: sums of many need float32's digits at least."""
        return torch.promote_types(self.query.dtype, torch.float32)

    def queries(self) -> Iterator[slice]:
        for start in range(0, self.query.shape[2], _QUERIES):
            yield slice(start, min(start + _QUERIES, self.query.shape[2]))

    def keys(self, queries: slice) -> Iterator[slice]:
        """The chunks of keys that some of a chunk of queries may look at."""
        keys = self.key.shape[2]
        last = keys - self.query.shape[2] + queries.stop if self.mask.causal else keys
        size = max(1, _KEYS * math.isqrt(keys))
        for start in range(0, last, size):
            yield slice(start, min(start + size, keys))

    def scores(self, queries: slice, keys: slice) -> Tensor:
        scores = self.query[:, :, queries] @ self.key[:, :, keys].transpose(-2, -1)
        past = self.key.shape[2] - self.query.shape[2]
        own = range(past + queries.start, past + queries.stop)
        allowed = self.mask.part(own, range(keys.start, keys.stop), scores.device)
        if allowed is None:
            return scores
        return scores.masked_fill_(~allowed.unsqueeze(1), torch.finfo(scores.dtype).min)

    def kept(self, weights: Tensor, queries: slice, keys: slice) -> Tensor | None:
        """What dropout multiplies a chunk's weights with, the same forward and backward."""
        if self.seeds is None:
            return None
        kept = self.dropped.keeps(self.seeds[:, :, queries], range(keys.start, keys.stop))
        return kept.to(weights.dtype).mul_(self.dropped.scale)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seeds: Tensor | None,
        mask: Mask,
        dropped: Dropped,
    ) -> Tensor:
        chunks = _Chunks(query, key, seeds, mask, dropped)
        result = value.new_empty(*query.shape[:3], value.shape[3])
        log_sums = query.new_empty(*query.shape[:3], 1, dtype=chunks.exact)
        for queries in chunks.queries():
            largest = log_sums.new_full((*query.shape[:2], queries.stop - queries.start, 1), -math.inf)
            total, gathered = torch.zeros_like(largest), largest.new_zeros(*largest.shape[:3], value.shape[3])
            for keys in chunks.keys(queries):
                scores = chunks.scores(queries, keys)
                newest = torch.maximum(largest, scores.amax(-1, keepdim=True))
                weights, fade = (scores - newest).exp_(), (largest - newest).exp_()
                total = total * fade + weights.sum(-1, keepdim=True)
                kept = chunks.kept(weights, queries, keys)
                weights = weights if kept is None else weights * kept
                gathered = gathered.mul_(fade) + weights.to(value.dtype) @ value[:, :, keys]
                largest = newest
            result[:, :, queries] = gathered / total
            log_sums[:, :, queries] = largest + total.log()
        ctx.save_for_backward(query, key, value, seeds, result, log_sums)
        ctx.constants = mask, dropped
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        query, key, value, seeds, result, log_sums = ctx.saved_tensors
        chunks = _Chunks(query, key, seeds, *ctx.constants)
        query_gradient = torch.empty_like(query)
        key_gradient, value_gradient = (torch.zeros_like(x, dtype=chunks.exact) for x in (key, value))
        for queries in chunks.queries():
            received = gradient[:, :, queries]
            gathered = torch.zeros_like(query[:, :, queries], dtype=chunks.exact)
            # The softmax's own part of the gradient: the sum over the keys of weight x d weight.
            inner = (received.to(chunks.exact) * result[:, :, queries]).sum(-1, keepdim=True)
            for keys in chunks.keys(queries):
                weights = (chunks.scores(queries, keys) - log_sums[:, :, queries]).exp_()
                kept = chunks.kept(weights, queries, keys)
                dropped = weights if kept is None else weights * kept
                value_gradient[:, :, keys] += dropped.to(value.dtype).transpose(-2, -1) @ received
                slope = received @ value[:, :, keys].transpose(-2, -1)
                slope = slope if kept is None else slope * kept
                slope = (slope - inner).mul_(weights).to(query.dtype)
                gathered += slope @ key[:, :, keys]
                key_gradient[:, :, keys] += slope.transpose(-2, -1) @ query[:, :, queries]
            query_gradient[:, :, queries] = gathered
        return query_gradient, key_gradient.to(key.dtype), value_gradient.to(value.dtype), None, None, None
