"""The Transformer in few, large operations (transformer.cpp): an encoder, a decoder's memory, a decoder's step.

The plain formula is ``models/transformer.py``. Every row is computed by itself, in an order that its neighbours have
no say in.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import torch
from jaxtyping import Float32, Int32, Int64, Shaped
from torch import Tensor

from transduce.kernels.native import call
from transduce.kernels.packing import Packing
from transduce.kernels.products import MatrixAddress, PackedMatrix

# How many numbers the kernels take together: sources are padded to whole vectors.
_VECTOR: Final = 16


class _Norm(ctypes.Structure):
    _fields_ = (("gain", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Norm) for name in ("self_norm", "cross_norm", "feed_norm")),
        *(
            (name, MatrixAddress)
            for name in ("input", "output", "query", "key_value", "cross_output", "inner", "outer")
        ),
    )


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("count", "d_model", "heads", "d_k", "d_v", "d_ff")),
        ("embedding", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("last", _Norm),
        *((name, ctypes.c_float) for name in ("embedding_scale", "epsilon", "scale")),
        ("pre", ctypes.c_int32),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("sentences", ctypes.c_int64),
        ("beam", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("tokens", "lengths", "slots", "ancestors", "past_keys", "past_values")),
        ("past_slots", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("memory_keys", "memory_values", "memory_lengths")),
        ("memory_slots", ctypes.c_int64),
        ("memory_columns", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("weight_columns", ctypes.c_int64),
    )


@final
@dataclass(frozen=True)
class PackedNorm:
    """What layer normalization multiplies with, and adds."""

    gain: Float32[Tensor, " model"]
    bias: Float32[Tensor, " model"]

    def address(self) -> _Norm:
        """Where the C++ kernels find it."""
        return _Norm(self.gain.data_ptr(), self.bias.data_ptr())


@final
@dataclass(frozen=True)
class PackedLayer:
    """A layer's matrices: ``input`` is W^Q, W^K and W^V side by side, ``key_value`` W^K and W^V of the memory.

    An encoder's layer has nothing that asks a memory.
    """

    self_norm: PackedNorm
    input: PackedMatrix
    output: PackedMatrix
    feed_norm: PackedNorm
    inner: PackedMatrix
    outer: PackedMatrix
    cross_norm: PackedNorm | None = None
    query: PackedMatrix | None = None
    key_value: PackedMatrix | None = None
    cross_output: PackedMatrix | None = None

    def address(self) -> _Layer:
        """Where the C++ kernels find all of it."""
        names = [name for name, *_ in _Layer._fields_]
        found = {name: part.address() for name in names if (part := getattr(self, name)) is not None}
        return _Layer(**found)


@final
@dataclass(frozen=True)
class PackedStack:
    """An encoder or a decoder: its embedding and positions (None: has none), its layers, and the norm behind them.

    ``scale`` multiplies the scores of queries and keys; ``pre`` says that norms stand before the sub-layers, and then
    there is a ``last`` one.
    """

    layers: Sequence[PackedLayer]
    embedding: Float32[Tensor, "vocabulary model"]
    embedding_scale: float
    positions: Float32[Tensor, "longest model"] | None
    last: PackedNorm | None
    heads: int
    d_k: int
    d_v: int
    d_ff: int
    epsilon: float
    scale: float
    pre: bool

    @cached_property
    def addresses(self) -> tuple[_Stack, Any]:
        """Where the C++ kernels find it, and what must live as long."""
        layers = (_Layer * len(self.layers))(*(layer.address() for layer in self.layers))
        stack = _Stack(
            *(ctypes.addressof(layers), len(layers), self.embedding.shape[1]),
            *(self.heads, self.d_k, self.d_v, self.d_ff, self.embedding.data_ptr()),
            None if self.positions is None else self.positions.data_ptr(),
            _Norm() if self.last is None else self.last.address(),
            *(self.embedding_scale, self.epsilon, self.scale, self.pre),
        )
        return stack, layers


def encode(stack: PackedStack, ids: Int64[Tensor, " tokens"], packing: Packing) -> Float32[Tensor, "tokens model"]:
    """The last hidden states of sequences laid end to end."""
    hidden = torch.empty(len(ids), stack.embedding.shape[1])
    call("encode", None, stack.addresses[0], ids.contiguous(), packing.offsets, len(packing.lengths), hidden)
    return hidden


@final
@dataclass(frozen=True)
class PackedMemory:
    """The keys and values that a decoder's layers ask, once for each sentence.

    A sentence's stand as close as its own length, in whole vectors, allows: (heads, d_k, own columns) and (heads, own
    columns, wide), from the beginning of its place. So they are the same wherever there is room for them.
    """

    keys: Shaped[Tensor, "layers slots columns keys"]
    values: Shaped[Tensor, "layers slots columns wide"]
    lengths: Int64[Tensor, " slots"]


def remember(
    stack: PackedStack, hidden: Float32[Tensor, "tokens model"], packing: Packing, dtype: torch.dtype
) -> PackedMemory:
    """What the decoder's layers ask of the encoder's output, kept in a number format."""
    rows, columns = len(packing.lengths), memory_columns(packing.longest)
    sizes = len(stack.layers), rows, columns
    keys = torch.empty(*sizes, stack.heads * stack.d_k, dtype=dtype)
    values = torch.empty(*sizes, stack.heads * (stack.d_v + -stack.d_v % _VECTOR), dtype=dtype)
    call("remember", dtype, stack.addresses[0], hidden.contiguous(), packing.offsets, rows, columns, keys, values)
    return PackedMemory(keys, values, packing.lengths.clone())


def memory_columns(length: int) -> int:
    """How many columns a source of so many symbols takes."""
    return length + -length % _VECTOR


@final
@dataclass(frozen=True)
class PackedPast:
    """The keys and values of what has been read: row b of a slot's beam holds what row b of its sentence wrote.

    Rows that change places move no key: ``ancestors[r, t]`` is the row of the beam that holds row r's key of column t.
    """

    keys: Shaped[Tensor, "layers slots beam heads columns d_k"]
    values: Shaped[Tensor, "layers slots beam heads columns d_v"]
    ancestors: Int32[Tensor, "rows columns"]


def step(
    stack: PackedStack,
    projection: PackedMatrix,
    tokens: Int64[Tensor, " rows"],
    lengths: Int64[Tensor, " sentences"],
    slots: Int64[Tensor, " sentences"],
    past: PackedPast,
    memory: PackedMemory,
    logits: Float32[Tensor, "rows vocabulary"],
    weights: Float32[Tensor, "rows heads columns"] | None = None,
) -> None:
    """Read one symbol of every row: fill ``logits`` with the scores of its next, and add to the past in place.

    Sentence i has read ``lengths[i]`` symbols before, and its place in the past and in the memory is ``slots[i]``.
    ``weights`` gets what the last layer weighs the memory by; columns behind a source's length are left as they are.
    """
    one = _Step(
        *(len(slots), len(tokens) // len(slots), tokens.data_ptr(), lengths.data_ptr(), slots.data_ptr()),
        *(past.ancestors.data_ptr(), past.keys.data_ptr(), past.values.data_ptr()),
        *(past.keys.shape[1], past.keys.shape[4]),
        *(memory.keys.data_ptr(), memory.values.data_ptr(), memory.lengths.data_ptr()),
        *memory.keys.shape[1:3],
        *((None, 0) if weights is None else (weights.data_ptr(), weights.shape[2])),
    )
    call("step", memory.keys.dtype, stack.addresses[0], projection.address(), one, logits)
