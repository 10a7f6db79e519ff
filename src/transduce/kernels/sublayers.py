"""Sub-layers one after the other, each in its residual (section 3.1): one node of autograd's graph, one call of C++.

The plain formula is that of the kernels it is made of: ``add_norm``, and ``attend_between`` or ``feed_forward``.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.config.model import Activation
from transduce.kernels.dropout import WHOLE, Dropped
from transduce.kernels.interface import (
    ACTIVATIONS,
    MOST_MAPS,
    SublayerAddress,
    SublayersAddress,
    SublayersBackwardAddress,
)
from transduce.kernels.linear_maps import Maps, in_tiles, maps_rows
from transduce.kernels.native import address, call, has_native
from transduce.kernels.ragged_attention import RaggedAttention

# SublayerAddress's fields. Packed faster than a ctypes structure is filled.
_SUBLAYER: Final = struct.Struct(f"=2q{3 * (5 * MOST_MAPS + 1)}q10qifqifqiffii4x")
_NO_MAPS: Final = [0] * (5 * MOST_MAPS + 1)
_CPU: Final = torch.device("cpu")


@final
@dataclass(frozen=True)
class Attending:
    """What ``attend_between`` is given beside the rows; ``memory`` maps another sequence to keys and values."""

    before: Maps
    attention: RaggedAttention
    after: Maps
    memory: Maps | None = None

    @property
    def dropped(self) -> Dropped:
        """What is left out of the weights."""
        return self.attention.dropped


@final
@dataclass(frozen=True)
class Transforming:
    """What ``feed_forward`` is given beside the rows."""

    before: Maps
    after: Maps
    activation: Activation = "relu"
    dropped: Dropped = WHOLE


Inner = Attending | Transforming
_Sublayers = ctypes.Array[SublayerAddress]


@final
@dataclass(frozen=True)
class Sublayer:
    """One of the two in its residual: its LayerNorm, which in ``post`` comes last, and what its output loses."""

    inner: Inner
    gain: Float[Tensor, " model"]
    bias: Float[Tensor, " model"]
    epsilon: float
    dropped: Dropped
    post: bool

    @cached_property
    def maps(self) -> list[Maps]:
        """In the order in which C++ has them."""
        inner = self.inner
        remembered = [inner.memory] if isinstance(inner, Attending) and inner.memory is not None else []
        return [inner.before, *remembered, inner.after]

    @property
    def parameters(self) -> Iterator[Tensor]:
        """In the order in which C++ lays their gradients down."""
        yield from (self.gain, self.bias)
        for maps in self.maps:
            yield from (each for each in maps.others if each is not None)


def may_run_sublayers(stream: Float[Tensor, "tokens model"]) -> bool:
    """Whether there are sub-layers that ``run_sublayers`` can take such a stream through, and is the fastest."""
    return stream.dtype == torch.float32 and has_native(stream) and maps_rows(stream)


def can_run_sublayers(stream: Float[Tensor, "tokens model"], sublayers: Sequence[Sublayer]) -> bool:
    """Whether these are such, of a stream for which there may be some."""
    parameters = (each for sublayer in sublayers for each in sublayer.parameters)
    return all(each.dtype == torch.float32 and each.is_contiguous() for each in parameters) and all(
        _way(each.inner, stream) == "C++" for each in sublayers
    )


def _way(inner: Inner, stream: Tensor) -> str:
    return inner.attention.way(stream) if isinstance(inner, Attending) else "C++"


def run_sublayers(
    stream: Float[Tensor, "tokens model"],
    joined: Float[Tensor, "tokens model"] | None,
    pending: Dropped,
    memory: Float[Tensor, "memory_tokens model"] | None,
    sublayers: Sequence[Sublayer],
) -> tuple[Float[Tensor, "tokens model"], BFloat16[Tensor, "tokens model"]]:
    """The residual stream behind all of them, and what goes along with it.

    Post-norm, as published: the stream as products read it. Pre-norm: the output of the last sub-layer, which is still
    to be added, less what is ``dropped`` there. ``joined`` is the same in front of the first one, where there is such:
    an output still to be added is less what is ``pending``. One sub-layer at most reads a ``memory``.
    """
    post = sublayers[0].post
    joined = stream if joined is None and post else joined
    joined, memory = (x if x is None else x.to(torch.bfloat16).contiguous() for x in (joined, memory))
    run = _Run(sublayers, WHOLE if joined is None or post else pending)
    parameters = [each for sublayer in sublayers for each in sublayer.parameters]
    result: tuple[Tensor, Tensor] = _Together.apply(stream.contiguous(), joined, memory, run, *parameters)  # type: ignore[no-untyped-call]
    return result


@final
@dataclass(frozen=True)
class _Run:
    """What the two passes have in common."""

    sublayers: Sequence[Sublayer]
    pending: Dropped

    @property
    def post(self) -> bool:
        """Whether the norms come last."""
        return self.sublayers[0].post

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Of the stream."""
        attention = next(each.inner.attention for each in self.sublayers if isinstance(each.inner, Attending))
        return attention.queries.tokens, self.sublayers[0].gain.shape[0]

    @cached_property
    def memory_rows(self) -> int:
        """How many symbols the memory has."""
        asking = (each.inner for each in self.sublayers if isinstance(each.inner, Attending))
        return next(each.attention.keys.tokens for each in asking if each.memory is not None)

    @cached_property
    def seeds(self) -> list[Tensor | None]:
        """What each dropout follows from, drawn where it is not known: the pending one, then two of each sub-layer."""
        dropped = [self.pending, *(each for s in self.sublayers for each in (s.dropped, s.inner.dropped))]
        return [each.rows(self.shape[0], device=_CPU) for each in dropped]

    def lay_down(self) -> _Sublayers:
        """Where C++ finds all sub-layers."""
        pairs = zip(self.seeds[1::2], self.seeds[2::2], strict=True)
        packed = [self._pack(each, *seeds) for each, seeds in zip(self.sublayers, pairs, strict=True)]
        return (SublayerAddress * len(packed)).from_buffer_copy(b"".join(packed))

    def addresses(self, laid_down: _Sublayers, joined: Tensor | None, memory: Tensor | None) -> SublayersAddress:
        """What a pass is given; what it keeps and writes is still to be said."""
        (rows, width), pending = self.shape, self.seeds[0]
        return SublayersAddress(
            all=ctypes.addressof(laid_down),
            count=len(laid_down),
            rows=rows,
            d=width,
            joined=None if joined is None else address(joined, torch.bfloat16, rows, width),
            memory=None if memory is None else address(memory, torch.bfloat16, self.memory_rows, width),
            pending=(WHOLE if pending is None else self.pending).chance(pending, rows),
            post=self.post,
            tiles=in_tiles(),
        )

    def _pack(self, sublayer: Sublayer, seeds: Tensor | None, inside: Tensor | None) -> bytes:
        inner, (rows, width) = sublayer.inner, self.shape
        if isinstance(inner, Attending):
            a = inner.attention
            memory = _NO_MAPS if inner.memory is None else _numbers(inner.memory, width)
            sizes = len(a.queries.lengths), a.heads.number, a.heads.d_k, a.heads.d_v
            offsets = [address(each.offsets, torch.long, sizes[0] + 1) for each in (a.queries, a.keys)]
            sequences: list[float] = [*sizes, *offsets, 0, 0, 0, 0, a.causal, a.scoring.scale]
            activation, gated, hidden = ACTIVATIONS[None], False, a.heads.widths[2]
        else:
            memory, sequences = _NO_MAPS, [0] * 12
            activation, gated = ACTIVATIONS[inner.activation], len(inner.before.weights) == 2
            hidden = inner.before.weights[0].shape[0]
        return _SUBLAYER.pack(
            *(address(each, torch.float32, width) for each in (sublayer.gain, sublayer.bias)),
            *_numbers(inner.before, width),
            *memory,
            *_numbers(inner.after, hidden),
            *sequences,
            *_chance(sublayer.dropped, seeds, rows),
            *_chance(inner.dropped, inside, rows),
            *(sublayer.epsilon, activation, gated),
        )


def _numbers(maps: Maps, inputs: int) -> list[int]:
    """MapsAddress's fields, without gradients."""
    outputs = [weight.shape[0] for weight in maps.weights]
    rest = [0] * (MOST_MAPS - len(outputs))
    both = [*zip(maps.weights, outputs, strict=True)], [*zip(maps.biases, outputs, strict=True)]
    weights = [address(each, torch.float32, rows, inputs) for each, rows in both[0]]
    biases = [0 if each is None else address(each, torch.float32, rows) for each, rows in both[1]]
    return [*weights, *rest, *biases, *rest, *_NO_MAPS[: 2 * MOST_MAPS], *outputs, *rest, inputs]


def _chance(dropped: Dropped, seeds: Tensor | None, rows: int) -> tuple[int, int, float]:
    """Chance's fields."""
    return (0, WHOLE.kept, 1.0) if seeds is None else (address(seeds, torch.long, rows), dropped.kept, dropped.scale)


def _places(parameters: Sequence[Tensor]) -> list[int]:
    return [each.data_ptr() for each in parameters]


@final
class _Together(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        stream: Tensor,
        joined: Tensor | None,
        memory: Tensor | None,
        run: _Run,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        laid_down = run.lay_down()
        addresses = run.addresses(laid_down, joined, memory)
        sizes = (ctypes.c_int64 * 2)()
        call("sublayers_room", None, addresses, ctypes.addressof(sizes))
        kept = stream.new_empty(sizes[0], dtype=torch.uint8)
        total, beside = torch.empty_like(stream), torch.empty_like(stream, dtype=torch.bfloat16)
        addresses.stream = address(stream, torch.float32, *run.shape)
        addresses.kept, addresses.next_stream, addresses.next_joined = (x.data_ptr() for x in (kept, total, beside))
        call("sublayers", None, addresses)
        ctx.save_for_backward(joined, memory, kept, total, *parameters)
        ctx.run, ctx.room, ctx.laid_down = run, sizes[1], (_places(parameters), laid_down)
        ctx.set_materialize_grads(False)
        return total, beside

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_total: Tensor | None,
        of_beside: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        joined, memory, kept, total, *parameters = ctx.saved_tensors
        run: _Run = ctx.run
        if of_beside is None and not (run.post and of_total is not None):
            of_beside = torch.zeros_like(total, dtype=torch.bfloat16)
        of_total, of_beside = (x if x is None else x.contiguous() for x in (of_total, of_beside))
        of_joined, of_memory = (x if x is None else torch.empty_like(x) for x in (joined, memory))
        of_stream, room = torch.empty_like(total), total.new_empty(ctx.room, dtype=torch.uint8)
        numbers = [each.numel() for each in parameters]
        of_parameters = total.new_empty(sum(numbers))
        places, laid_down = ctx.laid_down
        if places != _places(parameters):  # whoever shards them moves them between the passes
            laid_down = run.lay_down()
        addresses = run.addresses(laid_down, joined, memory)
        addresses.kept, addresses.next_stream = kept.data_ptr(), total.data_ptr()
        gradients = SublayersBackwardAddress(
            of_next_stream=None if of_total is None else address(of_total, torch.float32, *run.shape),
            of_next_joined=None if of_beside is None else address(of_beside, torch.bfloat16, *run.shape),
            room=room.data_ptr(),
            of_stream=of_stream.data_ptr(),
            of_joined=None if of_joined is None else of_joined.data_ptr(),
            of_memory=None if of_memory is None else of_memory.data_ptr(),
            of_parameters=of_parameters.data_ptr(),
        )
        call("sublayers_backward", None, addresses, gradients)
        parts = zip(torch.split(of_parameters, numbers), parameters, strict=True)
        return (
            of_stream,
            of_joined,
            of_memory,
            None,
            *(part if each.dim() == 1 else part.view(each.shape) for part, each in parts),
        )
