"""Attention over a ragged batch: no work on padding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from transduce.kernels import gpu
from transduce.kernels.attention import attend
from transduce.kernels.chain import chain
from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.gpu.sizes import Side, Sizes
from transduce.kernels.interface import Chance, Sequences
from transduce.kernels.linear_maps import Maps, chain_rows, linear_maps, maps_rows
from transduce.kernels.mask import Mask
from transduce.kernels.native import address, call, has_native
from transduce.kernels.projected_memory import ProjectedMemory
from transduce.kernels.ragged import RaggedLayout
from transduce.kernels.scores import Scoring
from transduce.kernels.varlen import attend_varlen, has_varlen

Way = Literal["C++", "Triton", "variable length", "padded"]

# Longer sequences have matrices large enough for the processor's matrix units, padding and all.
_LONGEST: Final = 128
# Longer ones fill the blocks of PyTorch's kernels.
_LONGEST_ON_CUDA: Final = 256
WIDEST_HEAD: Final = 256  # that the kernels for CUDA take
_HALF: Final = (torch.bfloat16, torch.float16)


@final
@dataclass(frozen=True)
class Heads:
    """How many heads there are, and how wide their queries, keys and values are; a row has them concatenated."""

    number: int
    d_k: int
    d_v: int

    @property
    def widths(self) -> list[int]:
        """Of all queries, keys and values of a row."""
        return [self.number * self.d_k, self.number * self.d_k, self.number * self.d_v]


@final
@dataclass(frozen=True)
class RaggedAttention:
    """An attention of each row of a batch on its own: row b's queries over row b's keys.

    Symbols are ragged, heads concatenated. The rows of ``dropped`` are the queries' symbols.
    """

    queries: RaggedLayout
    keys: RaggedLayout
    heads: Heads
    scoring: Scoring
    causal: bool = False
    window: int | None = None
    dropped: Dropped = WHOLE

    def way(self, projected: Float[Tensor, "tokens width"]) -> Way:
        """The fastest one that can."""
        return ragged_way(projected, self.keys, self.heads, self.window, self.dropped.share, plain=self.scoring.plain)


def attend_ragged(
    projected: Float[Tensor, "tokens width"],
    memory: Float[Tensor, "memory_tokens memory_width"] | None,
    attention: RaggedAttention,
) -> Float[Tensor, "tokens values"]:
    """``attend`` for each row of a batch on its own.

    ``projected`` holds queries, ``memory`` keys and values, concatenated; without memory, ``projected`` has all.
    """
    queries, keys, heads, scoring = attention.queries, attention.keys, attention.heads, attention.scoring
    way = attention.way(projected)
    if way in ("C++", "Triton"):
        memory = None if memory is None else memory.contiguous()
        return chain(projected.contiguous(), _Attending(memory, attention))
    query, key, value = (x.view(len(x), heads.number, -1) for x in _split(projected, memory, heads))
    if way == "variable length":
        scale, causal = scoring.scale, attention.causal
        return attend_varlen(query, key, value, queries, keys, scale, causal=causal).flatten(1)
    parts = (query, queries), (key, keys), (value, keys)
    query, key, value = (layout.pad(x).transpose(1, 2) for x, layout in parts)
    # Padding comes after every real position, so a causal mask already hides it.
    mask = Mask(None if attention.causal else keys.real, causal=attention.causal, window=attention.window)
    dropped = attention.dropped
    seeds = dropped.rows(len(projected), device=projected.device)
    if seeds is not None:
        dropped = Dropped(dropped.share, queries.pad(seeds))
    return queries.flatten(attend(query, key, value, mask, scoring, dropped).transpose(1, 2)).flatten(1)


def attend_between(
    x: Float[Tensor, "tokens model"],
    before: Maps,
    memory: Float[Tensor, "memory_tokens memory_width"] | ProjectedMemory | None,
    attention: RaggedAttention,
    after: Maps,
) -> Float[Tensor, "tokens outputs"]:
    """``attend_ragged`` of what the maps ``before`` make of ``x``, and then the map ``after``."""
    rows, room = (memory.rows, memory.gradient_room) if isinstance(memory, ProjectedMemory) else (memory, None)
    if attention.way(x) in ("C++", "Triton") and maps_rows(x, *before.weights) and maps_rows(x, *after.weights):
        if rows is not None and room is None:
            rows = rows.to(torch.bfloat16).contiguous()
        return chain_rows(x, before, _Attending(rows, attention, room), after)
    gathered = attend_ragged(linear_maps(x, before.weights, before.biases), rows, attention)
    return linear_maps(gathered, after.weights, after.biases)


def may_project_memory(memory: Tensor) -> bool:
    """Whether ``can_project_memory`` is worth asking: it never is on a processor."""
    return gpu.has_triton(memory)


def can_project_memory(
    memory: Float[Tensor, "memory_tokens model"], attention: RaggedAttention, maps: Sequence[Maps]
) -> bool:
    """Whether ``project_memory`` is there and the fastest, for several such attentions with these maps."""
    weights = [weight for each in maps for weight in each.weights]
    # Weights that are spread over processes are whole within their own layer alone.
    spread = any(map(is_traceable_wrapper_subclass, weights))
    return not spread and attention.way(memory) == "Triton" and maps_rows(memory, *weights)


def ragged_way(
    projected: Float[Tensor, "tokens width"],
    keys: RaggedLayout,
    heads: Heads,
    window: int | None,
    dropout: float,
    *,
    plain: bool,
) -> Way:
    """The fastest way that can (docs/performance.md): of tensors such as these, only type and device are looked at.

    ``plain`` is whether scores are scaled products alone.
    """
    if not plain or window is not None:
        return "padded"
    if has_native(projected) and keys.tokens <= _LONGEST * len(keys.lengths):
        return "C++"
    if dropout == 0 and _in_triton(projected, keys, heads):
        return "Triton"
    fused = heads.d_k == heads.d_v and dropout == 0 and has_varlen(projected, heads.d_k)
    return "variable length" if fused else "padded"


def _in_triton(projected: Tensor, keys: RaggedLayout, heads: Heads) -> bool:
    """Under autocast, whatever the type: a chain of maps and attention is in autocast's."""
    if not gpu.has_triton(projected):
        return False
    device = projected.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else projected.dtype
    short = keys.longest <= _LONGEST_ON_CUDA and max(heads.d_k, heads.d_v) <= WIDEST_HEAD
    return dtype in _HALF and short


def _split(projected: Tensor, memory: Tensor | None, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each row by row."""
    if memory is None:
        query, key, value = torch.split(projected, heads.widths, dim=1)
        return query, key, value
    key, value = torch.split(memory, heads.widths[1:], dim=1)
    return projected, key, value


@final
@dataclass(frozen=True)
class _Attending:
    """``attend_ragged`` in C++ or Triton's language as a part of a chain."""

    memory: Tensor | None
    attention: RaggedAttention
    room: Callable[[], Tensor] | None = None  # for the memory's gradient

    @property
    def others(self) -> Sequence[Tensor | None]:
        """The memory alone."""
        return (self.memory,)

    def forward(self, x: Tensor, others: Sequence[Tensor | None]) -> tuple[Tensor, Sequence[Tensor]]:
        """Kept is of each query the largest score, and one by the sum of the exponentials.

        In Triton's language: the output, and the logarithm of that sum.
        """
        heads, (memory,) = self.attention.heads, others
        output = x.new_empty(len(x), heads.widths[2])
        if gpu.has_triton(x):
            from transduce.kernels.gpu.attention import attend as run  # noqa: PLC0415 - Triton is read where it is used

            log_sums = x.new_empty(heads.number, len(x), dtype=torch.float32)
            run(_split(x, memory, heads), output, log_sums, *self._sides)
            return output, (output, log_sums)
        statistics = x.new_empty(2, heads.number, len(x), dtype=torch.float32)
        addresses = address(output, x.dtype, *output.shape), address(statistics, torch.float32, *statistics.shape)
        call("attention", x.dtype, *self._parts(x, memory), *addresses, *self._sizes(x, memory))
        return output, (statistics,)

    def backward(
        self, gradient: Tensor, x: Tensor, others: Sequence[Tensor | None], kept: Sequence[Tensor], *, want_x: bool
    ) -> tuple[Tensor | None, Sequence[Tensor | None]]:
        """All at once, wanted or not."""
        (memory,) = others
        of_x, of_memory = torch.empty_like(x), None
        if memory is not None:
            of_memory = torch.empty_like(memory) if self.room is None else self.room()
        if gpu.has_triton(x):
            from transduce.kernels.gpu.attention import attend_backward as run  # noqa: PLC0415

            heads = self.attention.heads
            (output, log_sums), to = kept, _split(of_x, of_memory, heads)
            run(_split(x, memory, heads), output, log_sums, gradient, to, *self._sides)
            return of_x, (of_memory,)
        parts, gradients = self._parts(x, memory), self._parts(of_x, of_memory)
        given = address(gradient, x.dtype, len(x), self.attention.heads.widths[2])
        statistics = address(kept[0], torch.float32, 2, self.attention.heads.number, len(x))
        call("attention_backward", x.dtype, *parts, given, statistics, *gradients, *self._sizes(x, memory))
        return of_x, (of_memory,)

    def _parts(self, x: Tensor, memory: Tensor | None) -> list[int]:
        """Where queries, keys and values begin."""
        a, (queries, keys, values) = self.attention, self.attention.heads.widths
        dtype, size = x.dtype, x.element_size()
        if memory is None:
            start = address(x, dtype, a.queries.tokens, queries + keys + values)
            return [start, start + queries * size, start + (queries + keys) * size]
        asked = address(memory, dtype, a.keys.tokens, keys + values)
        return [address(x, dtype, a.queries.tokens, queries), asked, asked + keys * size]

    def _sizes(self, x: Tensor, memory: Tensor | None) -> tuple[Sequences, Chance]:
        a, key_stride = self.attention, (x if memory is None else memory).shape[1]
        batch = len(a.queries.lengths)
        sequences = Sequences(
            *(batch, a.heads.number, a.heads.d_k, a.heads.d_v),
            *(address(each.offsets, torch.long, batch + 1) for each in (a.queries, a.keys)),
            *(x.shape[1], key_stride, key_stride, a.heads.widths[2]),
            *(a.causal, a.scoring.scale),
        )
        return sequences, a.dropped.chance(self._seeds, len(x))

    @property
    def _sides(self) -> tuple[Side, Side, Sizes]:
        """Queries and keys, and their sizes, as Triton's kernels are given them."""
        a = self.attention
        queries, keys = (Side(each.boundaries, each.longest) for each in (a.queries, a.keys))
        return queries, keys, Sizes(a.heads.number, a.heads.d_k, a.heads.d_v, a.scoring.scale, a.causal)

    @cached_property
    def _seeds(self) -> Tensor | None:
        layout = self.attention.queries
        return self.attention.dropped.rows(layout.tokens, device=layout.indices.device)
