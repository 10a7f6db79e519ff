"""The Transformer in few, large operations (transformer.cpp): an encoder, a decoder's memory, a decoder's step.

The plain formula is ``models/transformer.py``. Every row is computed by itself, in an order of its own:
outputs are batch-invariant.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from transduce.config.model import Activation
from transduce.kernels.decoder_memory import NativeMemory, NativePast, whole_vectors
from transduce.kernels.interface import (
    ACTIVATIONS,
    LayerAddress,
    NormAddress,
    StackAddress,
    StepAddress,
)
from transduce.kernels.native import address, call
from transduce.kernels.products import PrepackedMatrix
from transduce.kernels.ragged import RaggedLayout

# In place of a symbol: the row is left out of the step.
READS_NOTHING: Final = -1


@final
@dataclass(frozen=True)
class NativeNorm:
    """What layer normalization multiplies with, and adds."""

    gain: Float32[Tensor, " model"]
    bias: Float32[Tensor, " model"]

    @property
    def address(self) -> NormAddress:
        """Where the C++ kernels find it."""
        width = len(self.gain)
        return NormAddress(address(self.gain, torch.float32, width), address(self.bias, torch.float32, width))


@final
@dataclass(frozen=True)
class NativeLayer:
    """A layer's matrices: ``input`` is W^Q, W^K and W^V concatenated, ``key_value`` W^K and W^V of the memory.

    ``inner`` is a gated network's gate and inner map. An encoder's layer has no cross-attention. One without ``input``
    and ``output`` has average attention: its network and its gate, each where the model has it.
    """

    self_norm: NativeNorm
    input: PrepackedMatrix | None
    output: PrepackedMatrix | None
    feed_norm: NativeNorm
    inner: PrepackedMatrix
    outer: PrepackedMatrix
    cross_norm: NativeNorm | None = None
    query: PrepackedMatrix | None = None
    key_value: PrepackedMatrix | None = None
    cross_output: PrepackedMatrix | None = None
    average_inner: PrepackedMatrix | None = None
    average_outer: PrepackedMatrix | None = None
    average_gate: PrepackedMatrix | None = None

    @property
    def bytes_of_a_step(self) -> int:
        """What a decoder's step reads of its matrices: all of them, but those for the memory."""
        past = self.input, self.output, self.average_inner, self.average_outer, self.average_gate
        found = *past, self.query, self.cross_output, self.inner, self.outer
        return sum(each.panels.nbytes for each in found if each is not None)

    @property
    def address(self) -> LayerAddress:
        """Where the C++ kernels find all of it."""
        names = [name for name, *_ in LayerAddress._fields_]
        found = {name: part.address for name in names if (part := getattr(self, name)) is not None}
        return LayerAddress(**found)


@final
@dataclass(frozen=True)
class NativeStack:
    """An encoder or a decoder: its embedding, its layers, and its norms. Threads share it: it never changes.

    ``first`` is the norm of embeddings, ``last`` that behind the last layer, where there is one. ``scale`` multiplies
    the scores of queries and keys; ``pre`` says that norms stand before the sub-layers. ``address`` is where the C++
    kernels find all of it, as long as this object lives.
    """

    layers: Sequence[NativeLayer]
    embedding: Float32[Tensor, "vocabulary model"]
    embedding_scale: float
    first: NativeNorm | None
    last: NativeNorm | None
    heads: int
    d_k: int
    d_v: int
    d_ff: int
    epsilon: float
    scale: float
    pre: bool
    activation: Activation
    gated: bool
    address: StackAddress = field(init=False, repr=False, compare=False)
    _layers: ctypes.Array[LayerAddress] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Made once, before any thread can ask: whoever lays it down later would take the memory of another's away.
        layers = (LayerAddress * len(self.layers))(*(layer.address for layer in self.layers))
        vocabulary, width = self.embedding.shape
        stack = StackAddress(
            *(ctypes.addressof(layers), len(layers), vocabulary, width),
            *(self.heads, self.d_k, self.d_v, self.d_ff),
            address(self.embedding, torch.float32, vocabulary, width),
            *(NormAddress() if norm is None else norm.address for norm in (self.first, self.last)),
            *(self.embedding_scale, self.epsilon, self.scale, self.pre, ACTIVATIONS[self.activation], self.gated),
        )
        object.__setattr__(self, "_layers", layers)
        object.__setattr__(self, "address", stack)

    @property
    def averages(self) -> bool:
        """Whether a decoder's layers have average attention: all of them have it, or none."""
        return any(layer.input is None for layer in self.layers)


Table = Float32[Tensor, "longest model"]


def encode(
    stack: NativeStack, positions: Table | None, ids: Int64[Tensor, " tokens"], layout: RaggedLayout
) -> Float32[Tensor, "tokens model"]:
    """The last hidden states of a ragged batch; ``positions`` are their vectors, where there are any."""
    ids, hidden = ids.contiguous(), stack.embedding.new_empty(layout.tokens, stack.embedding.shape[1])
    batch = len(layout.lengths)
    call(
        *("encode", None, stack.address, *_table(stack, positions)),
        address(ids, torch.long, layout.tokens),
        *(address(layout.offsets, torch.long, batch + 1), batch),
        address(hidden, torch.float32, *hidden.shape),
    )
    return hidden


def _table(stack: NativeStack, positions: Table | None) -> tuple[int | None, int]:
    """Where the vectors of positions lie, and how many there are."""
    if positions is None:
        return None, 0
    longest = len(positions)
    return address(positions, torch.float32, longest, stack.embedding.shape[1]), longest


def remember(
    stack: NativeStack, hidden: Float32[Tensor, "tokens model"], layout: RaggedLayout, dtype: torch.dtype
) -> NativeMemory:
    """What the decoder's layers ask of the encoder's output, kept in a number format."""
    rows, columns = len(layout.lengths), whole_vectors(layout.longest)
    sizes = len(stack.layers), rows, columns
    keys = hidden.new_empty(*sizes, stack.heads * stack.d_k, dtype=dtype)
    values = hidden.new_empty(*sizes, stack.heads * whole_vectors(stack.d_v), dtype=dtype)
    hidden = hidden.contiguous()
    call(
        *("remember", dtype, stack.address, address(hidden, torch.float32, layout.tokens, stack.embedding.shape[1])),
        *(address(layout.offsets, torch.long, rows + 1), rows, columns),
        *(address(keys, dtype, *keys.shape), address(values, dtype, *values.shape)),
    )
    return NativeMemory(keys, values, layout.lengths.clone())


@final
class DecoderBuffers(NamedTuple):
    """What a decoder has read, and what it reads from: of some sentences, each with as many rows as its beam.

    Sentence i has read ``lengths[i]`` symbols, and its slot in the past and in the memory is ``slots[i]``. Reordering
    rows moves no key: ``ancestors[r, t]`` is the row of the beam that holds row r's key, or sum, of column t.
    ``positions`` are the vectors of positions up to the longest of the lengths, where the model has any.
    """

    positions: Table | None
    lengths: Int64[Tensor, " sentences"]
    slots: Int64[Tensor, " sentences"]
    ancestors: Int32[Tensor, "rows capacity"]
    past: NativePast
    memory: NativeMemory

    def address(
        self,
        stack: NativeStack,
        tokens: Int64[Tensor, " rows"],
        weights: Float32[Tensor, "rows heads columns"] | None = None,
    ) -> StepAddress:
        """Where the C++ kernels find all that a step of that decoder takes, as long as its parts live."""
        sentences, rows = len(self.slots), len(tokens)
        beam = rows // sentences
        _check(stack, beam, self.past, self.memory)
        return StepAddress(
            *(sentences, beam, *_table(stack, self.positions), address(tokens, torch.long, rows)),
            *(address(self.lengths, torch.long, sentences), address(self.slots, torch.long, sentences)),
            address(self.ancestors, torch.int32, rows, self.past.capacity),
            *(ctypes.addressof(self.past.address), ctypes.addressof(self.memory.address)),
            *_weights(weights, rows, stack.heads),
        )


def step(
    stack: NativeStack,
    projection: PrepackedMatrix,
    buffers: DecoderBuffers,
    tokens: Int64[Tensor, " rows"],
    logits: Float32[Tensor, "rows vocabulary"],
    weights: Float32[Tensor, "rows heads columns"] | None = None,
) -> None:
    """Read one symbol of every row: fill ``logits`` with the scores of its next, and add to the past in shape.

    A row whose symbol is ``READS_NOTHING`` takes no time; its scores are 0, and its weights are left as they are.
    ``weights`` gets what the last layer weighs the memory by; columns behind a source's length are left as they are.
    """
    one = buffers.address(stack, tokens, weights)
    scores = address(logits, torch.float32, len(tokens), projection.outputs)
    call("step", buffers.memory.keys.dtype, stack.address, projection.address, one, scores)


def _check(stack: NativeStack, beam: int, past: NativePast, memory: NativeMemory) -> None:
    """That the buffers are of such a decoder, and of such a beam."""
    layers, heads, d_k, d_v = len(stack.layers), stack.heads, stack.d_k, stack.d_v
    wide = heads * whole_vectors(d_v)
    keys = memory.sizes[0], layers, beam, heads, d_k, d_v
    sums = torch.float32, layers, beam, stack.embedding.shape[1]
    if past.sizes == (sums if stack.averages else keys) and memory.sizes[1:] == (layers, heads * d_k, wide):
        return
    raise ValueError(
        f"what is kept of the past and the memory is not of this decoder and beam: past {past.sizes}, memory "
        f"{memory.sizes}"
    )


def _weights(weights: Float32[Tensor, "rows heads columns"] | None, rows: int, heads: int) -> tuple[int | None, int]:
    """Where weights are left, and how many columns there are for them."""
    if weights is None:
        return None, 0
    columns = weights.shape[2]
    return address(weights, torch.float32, rows, heads, columns), columns
