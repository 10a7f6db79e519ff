"""What outputs of a source may be written with: the translations of its symbols, and what is frequent anyway."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from transduce.kernels import AllowedTokens
from transduce.models.contract import Tokens


@final
@dataclass(frozen=True)
class Shortlist:
    """The ``size`` likeliest translations of every source symbol, -1 where there are fewer, and frequent symbols."""

    translations: Int[Tensor, "source size"]
    frequent: Int[Tensor, " first"]
    vocabulary: int

    def to(self, device: torch.device) -> "Shortlist":
        """The same on a device."""
        return Shortlist(self.translations.to(device), self.frequent.to(device), self.vocabulary)

    def allowed(self, source: Tokens, needed: Sequence[Collection[int]]) -> AllowedTokens:
        """Each sentence's list: it follows from its own symbols and ``needed``, not from the rest of the batch."""
        ids, lengths = source.ids, source.lengths.to(source.ids.device)
        real = torch.arange(ids.shape[1], device=ids.device) < lengths.unsqueeze(1)
        # What is no symbol goes to a column of its own, which is dropped.
        found = self.translations.long()[ids.masked_fill(~real, 0)]
        found = found.masked_fill((found < 0) | ~real.unsqueeze(2), self.vocabulary).flatten(1)
        allowed = torch.zeros(len(ids), self.vocabulary + 1, dtype=torch.bool, device=ids.device)
        allowed.scatter_(1, found, True)
        allowed[:, self.frequent.long()] = True
        for row, symbols in zip(allowed, needed, strict=True):
            row[list(symbols)] = True
        return AllowedTokens.where(allowed[:, :-1])
