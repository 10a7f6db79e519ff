"""What the Transformer's decoder remembers between steps."""

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import AllowedTokens, Mask, join_allowed
from transduce.layers import KeyValues, Past, join_past, recent_mask


@final
@dataclass(frozen=True)
class TransformerState:
    """What every decoder layer keeps of the past; one set of keys and values of the memory for a sentence's rows.

    Rows may have read different numbers of symbols: each row's history ends at the last of ``width`` columns, and the
    columns before its first symbol are masked. ``allowed`` is what each sentence can be continued with, where it is
    not all of the vocabulary.
    """

    memory: tuple[KeyValues, ...]
    memory_real: Bool[Tensor, "sentences source"]
    past: tuple[Past, ...]
    lengths: Int[Tensor, " sentences"]
    width: int
    ragged: bool
    beam: int
    allowed: AllowedTokens | None = None

    @classmethod
    def empty(
        cls,
        memory: tuple[KeyValues, ...],
        past: tuple[Past, ...],
        memory_real: Bool[Tensor, "sentences source"],
        beam: int,
    ) -> "TransformerState":
        """Nothing has been read yet, as ``past`` has it."""
        lengths = torch.zeros(len(memory_real), dtype=torch.long, device=memory_real.device)
        return cls(memory, memory_real, past, lengths, width=0, ragged=False, beam=beam)

    def advance(self) -> "TransformerState":
        """The bookkeeping of one more symbol in every row."""
        return replace(self, lengths=self.lengths + 1, width=self.width + 1)

    def positions(self) -> Int[Tensor, "#rows 1"]:
        """The positions of the newest symbols, counted from the begin symbol."""
        if not self.ragged:
            return torch.full((1, 1), self.width - 1, device=self.lengths.device)
        return self._row_lengths().unsqueeze(1) - 1

    def past_mask(self, window: int | None) -> Mask:
        """Which columns the newest symbols may look at."""
        real = recent_mask(self._row_lengths(), self.width) if self.ragged else None
        return Mask(real, window=window)

    def memory_mask(self) -> Mask:
        """Which of the source's positions are no padding."""
        return Mask(self.memory_real)

    def reorder(self, rows: Int[Tensor, " rows"]) -> "TransformerState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return replace(self, past=tuple(layer.select(rows) for layer in self.past))

    def release(self, finished: Bool[Tensor, " sentences"]) -> "TransformerState":
        """Remove the finished sentences with all their rows; the others keep their order."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam, device=staying.device)).flatten()
        lengths = self.lengths[staying]
        width = int(lengths.max()) if len(staying) else 0
        return replace(
            self,
            memory=tuple(layer.select(staying) for layer in self.memory),
            memory_real=self.memory_real[staying],
            past=tuple(layer.select(rows).newest(width) for layer in self.past),
            lengths=lengths,
            width=width,
            ragged=bool((lengths < width).any()),
            allowed=None if self.allowed is None else self.allowed.keep(staying),
        )

    def admit(self, other: "TransformerState") -> "TransformerState":
        """Append the sentences of another state of the same beam; they may have read different numbers of symbols."""
        assert self.beam == other.beam
        source = max(self.memory_real.shape[1], other.memory_real.shape[1])
        masks = [F.pad(mask, (0, source - mask.shape[1])) for mask in (self.memory_real, other.memory_real)]
        return replace(
            self,
            memory=tuple(a.join(b, side="right") for a, b in zip(self.memory, other.memory, strict=True)),
            memory_real=torch.cat(masks),
            past=tuple(join_past(a, b) for a, b in zip(self.past, other.past, strict=True)),
            lengths=torch.cat([self.lengths, other.lengths]),
            width=max(self.width, other.width),
            ragged=self.ragged or other.ragged or (self.width != other.width and len(self.lengths) > 0),
            allowed=join_allowed(self.allowed, other.allowed),
        )

    def _row_lengths(self) -> Int[Tensor, " rows"]:
        return self.lengths.repeat_interleave(self.beam)
