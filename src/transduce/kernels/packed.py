"""Attention over sequences laid end to end: no work on padding."""

import ctypes
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.attention import attend
from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.mask import Mask
from transduce.kernels.native import Dropout, Sequences, call, has_native
from transduce.kernels.packing import Packing
from transduce.kernels.scores import Scoring
from transduce.kernels.variable_length import attend_variable_length, has_variable_length

# Longer sequences have matrices large enough for the processor's matrix units, padding and all.
_LONGEST: Final = 128


@final
@dataclass(frozen=True)
class Heads:
    """How many heads stand side by side in a row, and how wide their queries, keys and values are."""

    number: int
    d_k: int
    d_v: int

    @property
    def widths(self) -> list[int]:
        """Of all queries, keys and values of a row."""
        return [self.number * self.d_k, self.number * self.d_k, self.number * self.d_v]


def attend_packed(
    projected: Float[Tensor, "tokens width"],
    memory: Float[Tensor, "memory_tokens memory_width"] | None,
    queries: Packing,
    keys: Packing,
    heads: Heads,
    scoring: Scoring,
    *,
    causal: bool = False,
    reach: int | None = None,
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "tokens values"]:
    """``attend`` for each row of a batch on its own: row b's queries over row b's keys; heads side by side.

    ``projected`` holds queries, ``memory`` keys and values side by side; without memory, ``projected`` holds all three.
    The rows of ``dropped`` are the queries' symbols.
    """
    seeds = dropped.rows(len(projected), device=projected.device)
    way = packed_way(projected, keys, heads, reach, dropped.share, plain=scoring.plain)
    if way == "C++":
        result: Tensor = _Packed.apply(  # type: ignore[no-untyped-call]
            projected.contiguous(),
            None if memory is None else memory.contiguous(),
            seeds,
            _Settings(queries, keys, heads, scoring.scale, causal, dropped),
        )
        return result
    query, key, value = (x.view(len(x), heads.number, -1) for x in _split(projected, memory, heads))
    if way == "variable length":
        return attend_variable_length(query, key, value, queries, keys, scoring.scale, causal=causal).flatten(1)
    places = (query, queries), (key, keys), (value, keys)
    query, key, value = (packing.pad(x).transpose(1, 2) for x, packing in places)
    # Padding stands behind every real position, so a causal mask already hides it.
    mask = Mask(None if causal else keys.real, causal=causal, reach=reach)
    if seeds is not None:
        dropped = Dropped(dropped.share, queries.pad(seeds))
    return queries.pack(attend(query, key, value, mask, scoring, dropped).transpose(1, 2)).flatten(1)


def packed_way(
    projected: Float[Tensor, "tokens width"],
    keys: Packing,
    heads: Heads,
    reach: int | None,
    dropout: float,
    *,
    plain: bool,
) -> Literal["C++", "variable length", "padded"]:
    """The fastest way that can (docs/performance.md): of tensors such as these, only type and device are looked at.

    ``plain`` is whether scores are scaled products alone.
    """
    if not plain or reach is not None:
        return "padded"
    if has_native(projected) and keys.tokens <= _LONGEST * len(keys.lengths):
        return "C++"
    fused = heads.d_k == heads.d_v and dropout == 0 and has_variable_length(projected, heads.d_k)
    return "variable length" if fused else "padded"


def _split(projected: Tensor, memory: Tensor | None, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each row by row."""
    if memory is None:
        query, key, value = torch.split(projected, heads.widths, dim=1)
        return query, key, value
    key, value = torch.split(memory, heads.widths[1:], dim=1)
    return projected, key, value


@dataclass(frozen=True)
class _Settings:
    queries: Packing
    keys: Packing
    heads: Heads
    scale: float
    causal: bool
    dropped: Dropped

    def sequences(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> ctypes.Structure:
        heads = self.heads
        return Sequences(
            len(self.queries.lengths),
            *(heads.number, heads.d_k, heads.d_v),
            *(self.queries.offsets.data_ptr(), self.keys.offsets.data_ptr()),
            *(x.stride(0) for x in (query, key, value, output)),
            *(self.causal, self.scale),
        )


@final
class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        projected: Tensor,
        memory: Tensor | None,
        seeds: Tensor | None,
        settings: _Settings,
    ) -> Tensor:
        parts = _split(projected, memory, settings.heads)
        output = projected.new_empty(len(projected), settings.heads.widths[2])
        # Of each query the largest score, and one by the sum of the exponentials.
        statistics = projected.new_empty(2, settings.heads.number, len(projected), dtype=torch.float32)
        sequences, chance = settings.sequences(*parts, output), Dropout.of(settings.dropped, seeds)
        call("attention", projected.dtype, *parts, output, *statistics, sequences, chance)
        ctx.save_for_backward(projected, memory, seeds, statistics)
        ctx.settings = settings
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        projected, memory, seeds, statistics = ctx.saved_tensors
        settings: _Settings = ctx.settings
        of_projected = torch.empty_like(projected)
        of_memory = None if memory is None else torch.empty_like(memory)
        parts, gradients = (_split(p, m, settings.heads) for p, m in ((projected, memory), (of_projected, of_memory)))
        gradient = gradient.contiguous()
        sequences, chance = settings.sequences(*parts, gradient), Dropout.of(settings.dropped, seeds)
        call(
            "attention_backward",
            projected.dtype,
            *(*parts, gradient, *statistics, *gradients, sequences, chance),
        )
        return of_projected, of_memory, None, None
