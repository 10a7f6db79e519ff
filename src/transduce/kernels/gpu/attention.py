"""Attention over a ragged batch of short sequences, whose weights are never in memory (Dao 2023).

PyTorch's kernels for sequences of different lengths work on 128 positions at a time, several times as many as most
sentences have. A program here has a block of one head's queries (or, for their gradients, of its keys) of one sequence.
"""
# mypy: disable-error-code="untyped-decorator"

from collections.abc import Sequence
from typing import Final, no_type_check

import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.gpu.sizes import Side, Sizes

_LOG2E: Final = tl.constexpr(1.4426950408889634)


def attend(rows: Sequence[Tensor], output: Tensor, log_sums: Tensor, queries: Side, keys: Side, sizes: Sizes) -> None:
    """Write softmax(scale Q K^T) V of each sequence, and each query's log2 of the sum of exponentials (heads, tokens).

    ``rows`` are queries, keys and values, (tokens, heads * width) each, as views of whatever holds them.
    """
    block = sizes.block(queries.longest, keys.longest)
    blocks = triton.cdiv(queries.longest, block)
    if not len(output):
        return
    _attend[(blocks * queries.batch, sizes.heads)](
        *rows,
        *(output, log_sums, queries.boundaries, keys.boundaries),
        *(each.stride(0) for each in (*rows, output)),
        *(len(output), blocks, sizes.scale),
        *(sizes.causal, sizes.d_k, sizes.d_v, *sizes.wide, block),
        num_warps=block // 16,
    )


def attend_backward(
    rows: Sequence[Tensor],
    output: Tensor,
    log_sums: Tensor,
    gradient: Tensor,
    gradients: Sequence[Tensor],
    queries: Side,
    keys: Side,
    sizes: Sizes,
) -> None:
    """Write the ``gradients`` of queries, keys and values, from that of the output."""
    block = sizes.block(queries.longest, keys.longest)
    blocks_q, blocks_k = triton.cdiv(queries.longest, block), triton.cdiv(keys.longest, block)
    given = *rows, output, log_sums, gradient, *gradients, queries.boundaries, keys.boundaries
    strides = [each.stride(0) for each in (*rows, output, gradient, *gradients)]
    widths = sizes.causal, sizes.d_k, sizes.d_v, *sizes.wide, block
    if blocks_q == blocks_k == 1:
        grid = queries.batch, sizes.heads
        _attend_backward_whole[grid](*given, *strides, len(output), sizes.scale, *widths, num_warps=block // 16)
    else:
        grid = (blocks_q + blocks_k) * queries.batch, sizes.heads
        blocks = blocks_q, blocks_k
        _attend_backward[grid](*given, *strides, len(output), *blocks, sizes.scale, *widths, num_warps=block // 16)


@triton.jit
@no_type_check
def _rows(start, row, stride, column, length, width):
    """Rows of a block, (rows, columns), zeros beyond either end."""
    inside = (row < length)[:, None] & (column < width)[None, :]
    return tl.load(start + row[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
@no_type_check
def _keep(start, row, stride, column, length, width, values):
    """Write such a block."""
    inside = (row < length)[:, None] & (column < width)[None, :]
    tl.store(start + row[:, None] * stride + column[None, :], values, mask=inside)


@triton.jit(do_not_specialize=["tokens", "blocks"])
@no_type_check
def _attend(
    query, key, value, output, log_sums, q_ends, k_ends, q_stride, k_stride, v_stride, o_stride, tokens, blocks, scale,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    sequence, block, head = tl.program_id(0) // blocks, tl.program_id(0) % blocks, tl.program_id(1)
    q_start, k_start = tl.load(q_ends + sequence).to(tl.int64), tl.load(k_ends + sequence).to(tl.int64)
    q_length = (tl.load(q_ends + sequence + 1) - q_start).to(tl.int32)
    k_length = (tl.load(k_ends + sequence + 1) - k_start).to(tl.int32)
    if block * BLOCK < q_length:
        row = block * BLOCK + tl.arange(0, BLOCK)
        of_k, of_v = tl.arange(0, WIDE_K), tl.arange(0, WIDE_V)
        q = _rows(query + q_start * q_stride + head * D_K, row, q_stride, of_k, q_length, D_K)
        largest = tl.full([BLOCK], -1e30, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        result = tl.zeros([BLOCK, WIDE_V], tl.float32)
        end = k_length
        if CAUSAL:
            end = tl.minimum(k_length, (block + 1) * BLOCK)
        for first in range(0, end, BLOCK):
            place = first + tl.arange(0, BLOCK)
            k = _rows(key + k_start * k_stride + head * D_K, place, k_stride, of_k, k_length, D_K)
            scores = tl.dot(q, tl.trans(k)) * (scale * _LOG2E)
            seen = (place < k_length)[None, :]
            if CAUSAL:
                seen = seen & (place[None, :] <= row[:, None])
            scores = tl.where(seen, scores, float("-inf"))
            newer = tl.maximum(largest, tl.max(scores, 1))
            weights, shrink = tl.exp2(scores - newer[:, None]), tl.exp2(largest - newer)
            v = _rows(value + k_start * v_stride + head * D_V, place, v_stride, of_v, k_length, D_V)
            result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
            total = total * shrink + tl.sum(weights, 1)
            largest = newer
        total = tl.where(total > 0, total, 1.0)  # of a sequence without keys
        result = result / total[:, None]
        _keep(output + q_start * o_stride + head * D_V, row, o_stride, of_v, q_length, D_V, result.to(q.dtype))
        tl.store(log_sums + head.to(tl.int64) * tokens + q_start + row, largest + tl.log2(total), mask=row < q_length)


@triton.jit(do_not_specialize=["tokens", "blocks_q", "blocks_k"])
@no_type_check
def _attend_backward(
    query, key, value, output, log_sums, gradient, of_query, of_key, of_value, q_ends, k_ends,
    q_stride, k_stride, v_stride, o_stride, g_stride, dq_stride, dk_stride, dv_stride,
    tokens, blocks_q, blocks_k, scale,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = blocks_q + blocks_k
    sequence, block, head = tl.program_id(0) // blocks, tl.program_id(0) % blocks, tl.program_id(1)
    q_start, k_start = tl.load(q_ends + sequence).to(tl.int64), tl.load(k_ends + sequence).to(tl.int64)
    q_length = (tl.load(q_ends + sequence + 1) - q_start).to(tl.int32)
    k_length = (tl.load(k_ends + sequence + 1) - k_start).to(tl.int32)
    of_k, of_v = tl.arange(0, WIDE_K), tl.arange(0, WIDE_V)
    query += q_start * q_stride + head * D_K
    key += k_start * k_stride + head * D_K
    value += k_start * v_stride + head * D_V
    output += q_start * o_stride + head * D_V
    gradient += q_start * g_stride + head * D_V
    log_sums += head.to(tl.int64) * tokens + q_start
    if block < blocks_q:  # the gradient of some queries
        if block * BLOCK < q_length:
            row = block * BLOCK + tl.arange(0, BLOCK)
            q = _rows(query, row, q_stride, of_k, q_length, D_K)
            given = _rows(gradient, row, g_stride, of_v, q_length, D_V)
            made = _rows(output, row, o_stride, of_v, q_length, D_V)
            level = tl.sum(given.to(tl.float32) * made.to(tl.float32), 1)
            log_sum = tl.load(log_sums + row, mask=row < q_length, other=0.0)
            total = tl.zeros([BLOCK, WIDE_K], tl.float32)
            end = k_length
            if CAUSAL:
                end = tl.minimum(k_length, (block + 1) * BLOCK)
            for first in range(0, end, BLOCK):
                place = first + tl.arange(0, BLOCK)
                k = _rows(key, place, k_stride, of_k, k_length, D_K)
                v = _rows(value, place, v_stride, of_v, k_length, D_V)
                seen = (place < k_length)[None, :]
                if CAUSAL:
                    seen = seen & (place[None, :] <= row[:, None])
                scores = tl.dot(q, tl.trans(k)) * (scale * _LOG2E)
                weights = tl.exp2(tl.where(seen, scores - log_sum[:, None], float("-inf")))
                of_scores = weights * (tl.dot(given, tl.trans(v)) - level[:, None]) * scale
                total += tl.dot(of_scores.to(k.dtype), k)
            _keep(of_query + q_start * dq_stride + head * D_K, row, dq_stride, of_k, q_length, D_K, total.to(q.dtype))
    else:  # those of some keys and values
        first_key = (block - blocks_q) * BLOCK
        if first_key < k_length:
            place = first_key + tl.arange(0, BLOCK)
            k = _rows(key, place, k_stride, of_k, k_length, D_K)
            v = _rows(value, place, v_stride, of_v, k_length, D_V)
            of_keys = tl.zeros([BLOCK, WIDE_K], tl.float32)
            of_values = tl.zeros([BLOCK, WIDE_V], tl.float32)
            begin = 0
            if CAUSAL:
                begin = first_key  # queries before a key do not see it
            for first in range(begin, q_length, BLOCK):
                row = first + tl.arange(0, BLOCK)
                q = _rows(query, row, q_stride, of_k, q_length, D_K)
                given = _rows(gradient, row, g_stride, of_v, q_length, D_V)
                made = _rows(output, row, o_stride, of_v, q_length, D_V)
                level = tl.sum(given.to(tl.float32) * made.to(tl.float32), 1)
                log_sum = tl.load(log_sums + row, mask=row < q_length, other=0.0)
                seen = (place < k_length)[None, :] & (row < q_length)[:, None]
                if CAUSAL:
                    seen = seen & (place[None, :] <= row[:, None])
                scores = tl.dot(q, tl.trans(k)) * (scale * _LOG2E)
                weights = tl.exp2(tl.where(seen, scores - log_sum[:, None], float("-inf")))
                of_values += tl.dot(tl.trans(weights.to(given.dtype)), given)
                of_scores = weights * (tl.dot(given, tl.trans(v)) - level[:, None]) * scale
                of_keys += tl.dot(tl.trans(of_scores.to(q.dtype)), q)
            _keep(of_key + k_start * dk_stride + head * D_K, place, dk_stride, of_k, k_length, D_K, of_keys.to(k.dtype))
            _keep(
                of_value + k_start * dv_stride + head * D_V,
                place,
                dv_stride,
                of_v,
                k_length,
                D_V,
                of_values.to(v.dtype),
            )


@triton.jit(do_not_specialize=["tokens"])
@no_type_check
def _attend_backward_whole(
    query, key, value, output, log_sums, gradient, of_query, of_key, of_value, q_ends, k_ends,
    q_stride, k_stride, v_stride, o_stride, g_stride, dq_stride, dk_stride, dv_stride, tokens, scale,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """``_attend_backward`` where a block holds every sequence: all gradients of a head from one look at it."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    q_start, k_start = tl.load(q_ends + sequence).to(tl.int64), tl.load(k_ends + sequence).to(tl.int64)
    q_length = (tl.load(q_ends + sequence + 1) - q_start).to(tl.int32)
    k_length = (tl.load(k_ends + sequence + 1) - k_start).to(tl.int32)
    place, of_k, of_v = tl.arange(0, BLOCK), tl.arange(0, WIDE_K), tl.arange(0, WIDE_V)
    q = _rows(query + q_start * q_stride + head * D_K, place, q_stride, of_k, q_length, D_K)
    k = _rows(key + k_start * k_stride + head * D_K, place, k_stride, of_k, k_length, D_K)
    v = _rows(value + k_start * v_stride + head * D_V, place, v_stride, of_v, k_length, D_V)
    given = _rows(gradient + q_start * g_stride + head * D_V, place, g_stride, of_v, q_length, D_V)
    made = _rows(output + q_start * o_stride + head * D_V, place, o_stride, of_v, q_length, D_V)
    level = tl.sum(given.to(tl.float32) * made.to(tl.float32), 1)
    log_sum = tl.load(log_sums + head.to(tl.int64) * tokens + q_start + place, mask=place < q_length, other=0.0)
    seen = (place < k_length)[None, :] & (place < q_length)[:, None]
    if CAUSAL:
        seen = seen & (place[None, :] <= place[:, None])
    scores = tl.dot(q, tl.trans(k)) * (scale * _LOG2E)
    weights = tl.exp2(tl.where(seen, scores - log_sum[:, None], float("-inf")))
    of_values = tl.dot(tl.trans(weights.to(given.dtype)), given)
    _keep(of_value + k_start * dv_stride + head * D_V, place, dv_stride, of_v, k_length, D_V, of_values.to(v.dtype))
    of_scores = (weights * (tl.dot(given, tl.trans(v)) - level[:, None]) * scale).to(q.dtype)
    of_keys, of_queries = tl.dot(tl.trans(of_scores), q), tl.dot(of_scores, k)
    _keep(of_key + k_start * dk_stride + head * D_K, place, dk_stride, of_k, k_length, D_K, of_keys.to(k.dtype))
    _keep(of_query + q_start * dq_stride + head * D_K, place, dq_stride, of_k, q_length, D_K, of_queries.to(q.dtype))
