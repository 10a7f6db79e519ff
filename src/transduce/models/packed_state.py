"""What a packed decoder remembers between steps, in buffers that stay where they are."""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from jaxtyping import Bool, Float32, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from transduce.config import ModelConfig
from transduce.kernels import PackedMemory, PackedPast

# Columns that there is room for at first; the room doubles when it is full.
_COLUMNS: Final = 16


@final
@dataclass(frozen=True)
class PackedState:
    """Sentence i's keys and values stand in slot ``slots[i]`` of the past and of the memory, as long as it stays.

    Hypotheses that change places, and sentences that leave, move numbers of rows and slots: no key is copied.
    ``lengths`` are the symbols that each sentence has read, ``width`` is at least the largest of them, and ``source``
    the longest source's symbols. ``logits`` is where every step leaves its scores.
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
        past = PackedPast(keys, values, ancestors)
        return cls(memory, past, torch.arange(sentences), lengths, logits, width=0, source=source, beam=beam)

    def with_room(self) -> "PackedState":
        """The same with room for one more column."""
        columns = self.past.keys.shape[4]
        return self if self.width < columns else replace(self, past=_widen(self.past, columns))

    def room_for_weights(self, heads: int) -> Float32[Tensor, "rows heads columns"]:
        """Where a step can leave what each row weighs its memory by."""
        return torch.empty(len(self.slots) * self.beam, heads, self.memory.keys.shape[4])

    def reorder(self, rows: Int[Tensor, " rows"]) -> "PackedState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return replace(self, past=replace(self.past, ancestors=self.past.ancestors.index_select(0, rows)))

    def release(self, finished: Bool[Tensor, " sentences"]) -> "PackedState":
        """The finished sentences leave with all their rows; the others close ranks."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam)).flatten()
        return replace(self.reorder(rows), slots=self.slots[staying], lengths=self.lengths[staying])

    def admit(self, other: "PackedState") -> "PackedState":
        """The sentences of another state, of the same beam, come in behind these, however far each of them is."""
        assert self.beam == other.beam
        one, two = self._compact(), other._compact()
        columns = max(one.past.keys.shape[4], two.past.keys.shape[4])
        pasts = [_widen(each.past, columns - each.past.keys.shape[4]) for each in (one, two)]
        longest = max(one.memory.keys.shape[4], two.memory.keys.shape[4])
        memories = [_lengthen(each.memory, longest - each.memory.keys.shape[4]) for each in (one, two)]
        return PackedState(
            PackedMemory(
                torch.cat([each.keys for each in memories], dim=1),
                torch.cat([each.values for each in memories], dim=1),
                torch.cat([each.lengths for each in memories]),
            ),
            PackedPast(
                torch.cat([each.keys for each in pasts], dim=1),
                torch.cat([each.values for each in pasts], dim=1),
                torch.cat([each.ancestors for each in pasts]),
            ),
            torch.arange(len(one.slots) + len(two.slots)),
            torch.cat([one.lengths, two.lengths]),
            torch.empty((len(one.slots) + len(two.slots)) * self.beam, self.logits.shape[1]),
            max(one.width, two.width),
            max(one.source, two.source),
            self.beam,
        )

    def _compact(self) -> "PackedState":
        """The same in as many slots as there are sentences, in their order."""
        memory, past, slots = self.memory, self.past, self.slots
        return replace(
            self,
            memory=PackedMemory(
                memory.keys.index_select(1, slots), memory.values.index_select(1, slots), memory.lengths[slots]
            ),
            past=replace(past, keys=past.keys.index_select(1, slots), values=past.values.index_select(1, slots)),
            slots=torch.arange(len(slots)),
        )


def _widen(past: PackedPast, columns: int) -> PackedPast:
    """Room for so many more columns."""
    keys, values = (F.pad(each, (0, 0, 0, columns)) for each in (past.keys, past.values))
    return PackedPast(keys, values, F.pad(past.ancestors, (0, columns)))


def _lengthen(memory: PackedMemory, columns: int) -> PackedMemory:
    """So many more columns of zeros."""
    return PackedMemory(F.pad(memory.keys, (0, columns)), F.pad(memory.values, (0, 0, 0, columns)), memory.lengths)
