"""The state of a native decoder between steps: buffers that are written in place."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, final

import torch
from jaxtyping import Bool, Float32, Int, Int32, Int64
from torch import Tensor
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels import (
    AllowedTokens,
    DecoderBuffers,
    LogitColumns,
    NativeMemory,
    NativePast,
    PrepackedMatrix,
    join_allowed,
    select_outputs,
)
from transduce.kernels.transformer import memory_columns

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
    """Sentence i's keys and values are in slot ``slots[i]`` of the past and of the memory, as long as it stays.

    Reordering hypotheses and releasing sentences changes indices of rows and slots: no key is copied.
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
        layers, sentences = memory.keys.shape[:2]
        columns = memory_columns(source + source // 2 + _EXTRA)
        sizes = layers, sentences, beam, columns, config.heads
        new = memory.keys.new_empty
        ancestors = memory.keys.new_zeros(sentences * beam, columns, dtype=torch.int32)
        keys, values = (new(*sizes, width) for width in (config.d_k, config.d_v))
        lengths = memory.lengths.new_zeros(sentences)
        logits = new(sentences * beam * config.vocab_size, dtype=torch.float32)
        past, slots = NativePast(keys, values), torch.arange(sentences)
        return cls(memory, past, ancestors, slots, lengths, logits, width=0, source=source, beam=beam)

    def with_capacity(self) -> "NativeState":
        """The same with capacity for one more column."""
        slots, columns = self.past.keys.shape[1], self.past.columns
        return self if self.width < columns else self._reallocate(slots, self.memory.keys.shape[2], 2 * columns)

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
        """How many more symbols can be read before there is none for another's key, or its position has no vector."""
        columns = self.past.columns if self.positions is None else min(self.past.columns, len(self.positions))
        return columns - self.width

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
        slots, source_columns, columns = *self.memory.keys.shape[1:3], self.past.columns
        target, more = self, max(columns, other.past.columns)
        if sentences > slots or source > source_columns or more > columns:
            target = self._reallocate(sentences + sentences // 2, memory_columns(source), more)
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

    def _reallocate(self, slots: int, source: int, columns: int) -> "NativeState":
        """The same in buffers of so many slots, and columns of memory and past."""
        memory, past, new = self.memory, self.past, self.memory.keys.new_empty
        layers, heads = len(memory.keys), past.keys.shape[4]
        sizes = layers, slots, self.beam, columns, heads
        after = replace(
            self,
            memory=NativeMemory(
                new(layers, slots, source, memory.keys.shape[3]),
                new(layers, slots, source, memory.values.shape[3]),
                memory.lengths.new_zeros(slots),
            ),
            past=NativePast(new(*sizes, past.keys.shape[5]), new(*sizes, past.values.shape[5])),
            ancestors=F.pad(self.ancestors, (0, columns - self.ancestors.shape[1])),
            slots=torch.arange(len(self.slots)),
            logits=self.logits.new_empty(len(self.logits) // past.keys.shape[1] * slots),
        )
        after._write(self, after.slots)
        return after

    def _write(self, other: "NativeState", slots: Int64[Tensor, " sentences"]) -> None:
        """What the sentences of another state remember, into these slots."""
        self.memory.lengths[slots] = other.memory.lengths[other.slots]
        source = memory_columns(other.source)
        for to, given in _runs(slots, other.slots):
            self.memory.keys[:, to, :source] = other.memory.keys[:, given, :source]
            self.memory.values[:, to, :source] = other.memory.values[:, given, :source]
            if other.width:
                self.past.keys[:, to, :, : other.width] = other.past.keys[:, given, :, : other.width]
                self.past.values[:, to, :, : other.width] = other.past.values[:, given, :, : other.width]


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
