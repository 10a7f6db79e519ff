"""What a packed decoder remembers between steps, in buffers that stay where they are."""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from jaxtyping import Bool, Float32, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from transduce.config import ModelConfig
from transduce.kernels import PackedMemory, PackedPast
from transduce.kernels.transformer import COLUMNS

# Columns that there is room for at first; the room doubles when it is full.
_COLUMNS: Final = 16


@final
@dataclass(frozen=True)
class PackedState:
    """Sentence i's keys and values stand in slot ``slots[i]`` of the past and of the memory, as long as it stays.

    Hypotheses that change places, and sentences that leave, move numbers of rows and slots: no key is copied.
    There may be more slots than sentences. ``lengths`` are the symbols that each sentence has read, ``width`` is the
    largest of them (at least), and ``source`` the longest source's symbols. ``logits`` is where every step leaves its
    scores.
    """

    memory: PackedMemory
    past: PackedPast
    slots: Int64[Tensor, " sentences"]
    lengths: Int64[Tensor, " sentences"]
    logits: Float32[Tensor, "room vocabulary"]
    width: int
    source: int
    beam: int

    @classmethod
    def empty(cls, memory: PackedMemory, config: ModelConfig, source: int, beam: int) -> "PackedState":
        """Nothing has been read yet."""
        layers, sentences, heads = memory.keys.shape[:3]
        sizes, dtype = (layers, sentences, beam, heads, _COLUMNS), memory.keys.dtype
        ancestors = torch.zeros(sentences * beam, _COLUMNS, dtype=torch.int32)
        keys, values = (torch.empty(*sizes, width, dtype=dtype) for width in (config.d_k, config.d_v))
        lengths, logits = torch.zeros(sentences, dtype=torch.long), torch.empty(sentences * beam, config.vocab_size)
        memory, past = replace(memory, lengths=memory.lengths.cpu().clone()), PackedPast(keys, values, ancestors)
        return cls(memory, past, torch.arange(sentences), lengths, logits, width=0, source=source, beam=beam)

    def with_room(self) -> "PackedState":
        """The same with room for one more column."""
        slots, columns = self.past.keys.shape[1], self.past.keys.shape[4]
        return self if self.width < columns else self._laid_anew(slots, self.memory.keys.shape[4], 2 * columns)

    def room_for_weights(self, heads: int) -> Float32[Tensor, "rows heads columns"]:
        """Where a step can leave what each row weighs its memory by."""
        return torch.empty(len(self.slots) * self.beam, heads, self.memory.keys.shape[4])

    def reorder(self, rows: Int[Tensor, " rows"]) -> "PackedState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return replace(self, past=replace(self.past, ancestors=self.past.ancestors.index_select(0, rows)))

    def release(self, finished: Bool[Tensor, " sentences"]) -> "PackedState":
        """The finished sentences leave with all their rows; the others close ranks, and slots are free."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam)).flatten()
        slots, lengths = self.slots[staying], self.lengths[staying]
        width, source = _largest(lengths), _largest(self.memory.lengths[slots])
        return replace(self.reorder(rows), slots=slots, lengths=lengths, width=width, source=source)

    def admit(self, other: "PackedState") -> "PackedState":
        """The sentences of another state, of the same beam, come in behind these, however far each of them is.

        They move into free slots. Only where those are too few or too small, all is laid anew, with columns for the
        longest source that is there and half as many slots again as there are sentences.
        """
        assert self.beam == other.beam
        sentences, source = len(self.slots) + len(other.slots), max(self.source, other.source)
        room, columns = self, max(self.past.keys.shape[4], other.past.keys.shape[4])
        if (
            sentences > self.memory.keys.shape[1]
            or source > self.memory.keys.shape[4]
            or columns > self.past.keys.shape[4]
        ):
            room = self._laid_anew(sentences + sentences // 2, source + -source % COLUMNS, columns)
        slots = room._free()[: len(other.slots)]
        room._write(other, slots)
        ancestors = [F.pad(each.past.ancestors, (0, columns - each.past.ancestors.shape[1])) for each in (room, other)]
        return replace(
            room,
            past=replace(room.past, ancestors=torch.cat(ancestors)),
            slots=torch.cat([room.slots, slots]),
            lengths=torch.cat([room.lengths, other.lengths]),
            width=max(self.width, other.width),
            source=source,
        )

    def _free(self) -> Int64[Tensor, " free"]:
        """The slots that no sentence stands in."""
        free = torch.ones(self.memory.keys.shape[1], dtype=torch.bool)
        free[self.slots] = False
        return free.nonzero().squeeze(1)

    def _laid_anew(self, slots: int, source: int, columns: int) -> "PackedState":
        """The same in buffers of so many slots, and columns of memory and past."""
        memory, past, new = self.memory, self.past, self.memory.keys.new_empty
        layers, _, heads, d_k, _ = memory.keys.shape
        sizes = layers, slots, self.beam, heads, columns
        after = replace(
            self,
            memory=PackedMemory(
                new(layers, slots, heads, d_k, source),
                new(layers, slots, heads, source, memory.values.shape[4]),
                memory.lengths.new_zeros(slots),
            ),
            past=PackedPast(
                new(*sizes, d_k),
                new(*sizes, past.values.shape[5]),
                F.pad(past.ancestors, (0, columns - past.ancestors.shape[1])),
            ),
            slots=torch.arange(len(self.slots)),
            logits=self.logits.new_empty(slots * self.beam, self.logits.shape[1]),
        )
        after._write(self, after.slots)
        return after

    def _write(self, other: "PackedState", slots: Int64[Tensor, " sentences"]) -> None:
        """What the sentences of another state remember, into these slots."""
        self.memory.lengths[slots] = other.memory.lengths[other.slots]
        for to, given in zip(slots.tolist(), other.slots.tolist(), strict=True):
            _copy(self.memory.keys[:, to], other.memory.keys[:, given], 3, other.source)
            _copy(self.memory.values[:, to], other.memory.values[:, given], 2, other.source)
            _copy(self.past.keys[:, to], other.past.keys[:, given], 3, other.width)
            _copy(self.past.values[:, to], other.past.values[:, given], 3, other.width)


def _copy(to: Tensor, given: Tensor, dim: int, columns: int) -> None:
    """The first so many columns, which stand in that dimension."""
    if columns:
        to.narrow(dim, 0, columns).copy_(given.narrow(dim, 0, columns))


def _largest(numbers: Int[Tensor, " sentences"]) -> int:
    return int(numbers.max()) if len(numbers) else 0
