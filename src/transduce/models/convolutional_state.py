"""What a convolutional decoder remembers between steps: the last columns that its kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import AllowedTokens, join_allowed
from transduce.layers import Convolution


@final
@dataclass(frozen=True)
class ConvolutionalState:
    """The sources' encodings, one for all the rows of a sentence, and the columns that each convolution reads again.

    ``columns`` has a ring for each convolution (``Convolution.step``), as long as its kernel reaches back, so that
    neither a step nor what is kept grows with the output. All rows go by one ``clock``: a row that began later has
    zeros where it had not begun, which are what a convolution reads before the first symbol.
    ``lengths`` are the symbols that each sentence's rows have read, ``sources`` the columns of its encoding.
    """

    memory: tuple[Float[Tensor, "sentences source _"], ...]
    sources: Int[Tensor, " sentences"]
    columns: tuple[Float[Tensor, "_ rows _"], ...]
    lengths: Int[Tensor, " sentences"]
    clock: int
    beam: int
    allowed: AllowedTokens | None = None

    @classmethod
    def empty(
        cls,
        memory: tuple[Float[Tensor, "sentences source _"], ...],
        sources: Int[Tensor, " sentences"],
        convolutions: Sequence[Convolution],
        beam: int,
        allowed: AllowedTokens | None,
    ) -> "ConvolutionalState":
        """Nothing has been read yet; ``convolutions`` are the decoder's."""
        rows = len(sources) * beam
        columns = tuple(each.empty(rows, memory[0]) for each in convolutions)
        return cls(memory, sources, columns, torch.zeros_like(sources), clock=0, beam=beam, allowed=allowed)

    def advance(self) -> "ConvolutionalState":
        """The bookkeeping of one more symbol in every row."""
        return replace(self, lengths=self.lengths + 1, clock=self.clock + 1)

    def by_row(self, of_sentences: Int[Tensor, " sentences"]) -> Int[Tensor, " rows"]:
        """What is a sentence's, for each of its rows."""
        return of_sentences.repeat_interleave(self.beam)

    def reorder(self, rows: Int[Tensor, " rows"]) -> "ConvolutionalState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return replace(self, columns=tuple(ring.index_select(1, rows) for ring in self.columns))

    def release(self, finished: Bool[Tensor, " sentences"]) -> "ConvolutionalState":
        """Remove the finished sentences with all their rows; the others keep their order."""
        staying = (~finished).nonzero().squeeze(1)
        rows = (staying.unsqueeze(1) * self.beam + torch.arange(self.beam, device=staying.device)).flatten()
        return replace(
            self.reorder(rows),
            memory=tuple(each.index_select(0, staying) for each in self.memory),
            sources=self.sources[staying],
            lengths=self.lengths[staying],
            allowed=None if self.allowed is None else self.allowed.keep(staying),
        )

    def admit(self, other: "ConvolutionalState") -> "ConvolutionalState":
        """Append the sentences of another state of the same beam; they may have read different numbers of symbols."""
        assert self.beam == other.beam
        # The rings of the other are turned to this one's time.
        turned = (ring.roll(self.clock - other.clock, dims=0) if len(ring) else ring for ring in other.columns)
        source = max(self.memory[0].shape[1], other.memory[0].shape[1])
        return replace(
            self,
            memory=tuple(
                torch.cat([F.pad(each, (0, 0, 0, source - each.shape[1])) for each in both])
                for both in zip(self.memory, other.memory, strict=True)
            ),
            sources=torch.cat([self.sources, other.sources]),
            columns=tuple(torch.cat(both, dim=1) for both in zip(self.columns, turned, strict=True)),
            lengths=torch.cat([self.lengths, other.lengths]),
            allowed=join_allowed(self.allowed, other.allowed),
        )
