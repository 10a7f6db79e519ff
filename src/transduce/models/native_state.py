"""The state of a native decoder between steps: buffers that are written in place."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, assert_never, final

import torch
from jaxtyping import Bool, Float32, Int, Int32, Int64
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels import (
    AllowedTokens,
    DecoderBuffers,
    LogitColumns,
    NativeKeyValues,
    NativeMemory,
    NativePast,
    NativeSums,
    PrepackedMatrix,
    join_allowed,
    select_outputs,
)
from transduce.kernels.decoder_memory import SUMS, whole_vectors

# Columns at first beyond half as many again as the longest source has: pages that nothing writes to take no memory.
_EXTRA: Final = 64


@final
@dataclass(frozen=True)
class ShortlistedProjection:
    """The outputs of a projection that any of some sentences may write; symbol v's score is output ``columns[v]``.

    It serves these sentences, and any of them alone.
    """

    matrix: PrepackedMatrix
    columns: Int64[Tensor, " vocabulary"]

    @classmethod
    def of(cls, projection: PrepackedMatrix, allowed: AllowedTokens) -> "ShortlistedProjection":
        """The outputs of all the lists, in ascending order."""
        symbols = allowed.together()
        return cls(select_outputs(projection, symbols), LogitColumns.of(allowed, symbols).columns)


@final
@dataclass
class NativeState:
    """What is kept of sentence i is in slot ``slots[i]`` of the past and of the memory, as long as it stays.

    Reordering hypotheses and releasing sentences changes indices of rows and slots: no key and no sum is copied.
    There may be more slots than sentences. ``ancestors[r, t]`` is the row of its beam that wrote what row r looks back
    at in column t. ``lengths`` are the symbols that each sentence has read, ``width`` is the
    largest of them (at least), and ``source`` the longest source's symbols. ``logits`` is where every step leaves its
    scores. What comes in every step is changed in place: a new object with as many fields would take as long as the
    calls of C++ do. ``positions`` are the vectors of the positions that it may come to, where the model has any: longer
    outputs are given more. ``allowed`` is what each sentence can be continued with, where it is not all of the
    vocabulary, and ``shortlisted`` what scores it, once it is needed.
    """

    memory: NativeMemory
    past: NativePast
    ancestors: Int32[Tensor, "rows capacity"]
    slots: Int64[Tensor, " sentences"]
    lengths: Int64[Tensor, " sentences"]
    logits: Float32[Tensor, " scores"]
    width: int
    source: int
    beam: int
    positions: Float32[Tensor, "longest model"] | None = None
    allowed: AllowedTokens | None = None
    shortlisted: ShortlistedProjection | None = None
    _scores: Float32[Tensor, "rows outputs"] | None = field(init=False, repr=False, default=None)

    @classmethod
    def empty(cls, memory: NativeMemory, config: TransformerConfig, source: int, beam: int) -> "NativeState":
        """Nothing has been read yet. There is room for outputs much longer than the longest source.

        It doubles where it is full: to copy all keys for one sentence that goes on and on takes a tenth of the time.
        """
        sentences, capacity = memory.keys.shape[1], whole_vectors(source + source // 2 + _EXTRA)
        ancestors = memory.keys.new_zeros(sentences * beam, capacity, dtype=torch.int32)
        lengths = memory.lengths.new_zeros(sentences)
        logits = memory.keys.new_empty(sentences * beam * config.vocab_size, dtype=torch.float32)
        past, slots = _nothing_read(memory, config, beam, capacity), torch.arange(sentences)
        return cls(memory, past, ancestors, slots, lengths, logits, width=0, source=source, beam=beam)

    def with_capacity(self) -> "NativeState":
        """The same with capacity for one more column."""
        (slots, columns), capacity = self.memory.keys.shape[1:3], self.past.capacity
        return self if self.width < capacity else self._reallocate(slots, columns, 2 * capacity)

    def weights_buffer(self, heads: int) -> Float32[Tensor, "rows heads columns"]:
        """Where a step can leave what each row weighs its memory by."""
        return self.logits.new_zeros(len(self.slots) * self.beam, heads, self.source)

    def scores(self, outputs: int) -> Float32[Tensor, "rows outputs"]:
        """Where the next step leaves its scores, so many for each row."""
        if self._scores is None or self._scores.shape[1] != outputs:
            rows = len(self.slots) * self.beam
            self._scores = self.logits[: rows * outputs].view(rows, outputs)
        return self._scores

    @property
    def buffers(self) -> DecoderBuffers:
        """What a step reads and writes."""
        return DecoderBuffers(self.positions, self.lengths, self.slots, self.ancestors, self.past, self.memory)

    @property
    def room(self) -> int:
        """How many more symbols can be read before there is no room for another, or its position has no vector."""
        capacity = self.past.capacity
        return (capacity if self.positions is None else min(capacity, len(self.positions))) - self.width

    def advance(self) -> "NativeState":
        """Every row has read a symbol."""
        self.lengths += 1
        self.width += 1
        return self

    def reorder(self, rows: Int[Tensor, " rows"]) -> "NativeState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        self.ancestors = self.ancestors.index_select(0, rows)
        return self

    def release(self, finished: Bool[Tensor, " sentences"]) -> "NativeState":
        """The finished sentences leave with all their rows; the others close ranks, and slots are free."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam)).flatten()
        slots, lengths = self.slots[staying], self.lengths[staying]
        width, source = _largest(lengths), _largest(self.memory.lengths[slots])
        allowed = None if self.allowed is None else self.allowed.keep(staying)
        return replace(
            self,
            ancestors=self.ancestors.index_select(0, rows),
            slots=slots,
            lengths=lengths,
            width=width,
            source=source,
            allowed=allowed,
        )

    def admit(self, other: "NativeState") -> "NativeState":
        """The sentences of another state, of the same beam, come in behind these, however far each of them is.

        They take free slots. Only where those are too few or too small, the buffers are reallocated, with columns for
        the longest source that is there and half as many slots again as there are sentences.
        """
        assert self.beam == other.beam
        sentences, source = len(self.slots) + len(other.slots), max(self.source, other.source)
        slots, source_columns, capacity = *self.memory.keys.shape[1:3], self.past.capacity
        target, more = self, max(capacity, other.past.capacity)
        if sentences > slots or source > source_columns or more > capacity:
            target = self._reallocate(sentences + sentences // 2, whole_vectors(source), more)
        taken = target._free()[: len(other.slots)]
        target._write(other, taken)
        ancestors = [F.pad(each.ancestors, (0, more - each.ancestors.shape[1])) for each in (target, other)]
        return replace(
            target,
            ancestors=torch.cat(ancestors),
            slots=torch.cat([target.slots, taken]),
            lengths=torch.cat([target.lengths, other.lengths]),
            width=max(self.width, other.width),
            source=source,
            positions=_longer(self.positions, other.positions),
            allowed=join_allowed(self.allowed, other.allowed),
            shortlisted=None,
        )

    def _free(self) -> Int64[Tensor, " free"]:
        """The slots without a sentence."""
        free = torch.ones(self.memory.keys.shape[1], dtype=torch.bool)
        free[self.slots] = False
        return free.nonzero().squeeze(1)

    def _reallocate(self, slots: int, source: int, capacity: int) -> "NativeState":
        """The same in buffers of so many slots, columns of memory, and symbols that may be read."""
        memory, new = self.memory, self.memory.keys.new_empty
        layers, before = memory.keys.shape[:2]
        after = replace(
            self,
            memory=NativeMemory(
                new(layers, slots, source, memory.keys.shape[3]),
                new(layers, slots, source, memory.values.shape[3]),
                memory.lengths.new_zeros(slots),
            ),
            past=self.past.resized(slots, capacity),
            ancestors=F.pad(self.ancestors, (0, capacity - self.ancestors.shape[1])),
            slots=torch.arange(len(self.slots)),
            logits=self.logits.new_empty(len(self.logits) // before * slots),
        )
        after._write(self, after.slots)
        return after

    def _write(self, other: "NativeState", slots: Int64[Tensor, " sentences"]) -> None:
        """What the sentences of another state remember, into these slots."""
        self.memory.lengths[slots] = other.memory.lengths[other.slots]
        source = whole_vectors(other.source)
        for to, given in _runs(slots, other.slots):
            self.memory.keys[:, to, :source] = other.memory.keys[:, given, :source]
            self.memory.values[:, to, :source] = other.memory.values[:, given, :source]
            if other.width:
                for own, its in zip(self.past.parts, other.past.parts, strict=True):
                    own[:, to, :, : other.width] = its[:, given, :, : other.width]


def _nothing_read(memory: NativeMemory, config: TransformerConfig, beam: int, capacity: int) -> NativePast:
    """The past of rows that may read so many symbols."""
    new, sizes = memory.keys.new_empty, (*memory.keys.shape[:2], beam)
    match config.decoder_self_attention:
        case "multi_head":
            keys, values = (new(*sizes, capacity, config.heads, width) for width in (config.d_k, config.d_v))
            return NativeKeyValues(keys, values)
        case "average":
            return NativeSums(new(*sizes, SUMS, config.d_model, dtype=torch.float32), capacity)
        case _:
            assert_never(config.decoder_self_attention)


def _runs(one: Int64[Tensor, " slots"], other: Int64[Tensor, " slots"]) -> Iterator[tuple[slice, slice]]:
    """The slots of both, side by side, by stretches in which each next one lies behind the one before."""
    breaks = ((one.diff() != 1) | (other.diff() != 1)).nonzero().squeeze(1) + 1
    bounds = [0, *breaks.tolist(), len(one)]
    for start, stop in pairwise(bounds if len(one) else []):
        first, second = int(one[start]), int(other[start])
        yield slice(first, first + stop - start), slice(second, second + stop - start)


def _longer(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Of two tables that begin alike."""
    return one if one is None or other is None or len(one) >= len(other) else other


def _largest(numbers: Int64[Tensor, " sentences"]) -> int:
    return int(numbers.max()) if len(numbers) else 0
