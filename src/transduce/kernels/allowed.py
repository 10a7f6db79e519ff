"""Which symbols each sentence may write, and which column of a batch's logits has their scores."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor


@final
@dataclass(frozen=True)
class AllowedTokens:
    """Sentence i may write ``symbols[i, :lengths[i]]``, in ascending order; padding repeats its first one."""

    symbols: Int64[Tensor, "sentences longest"]
    lengths: Int64[Tensor, " sentences"]
    vocabulary: int

    @classmethod
    def where(cls, allowed: Bool[Tensor, "sentences vocabulary"]) -> "AllowedTokens":
        """The lists as a table says them; each sentence has one symbol at least."""
        sentence, symbol = allowed.nonzero(as_tuple=True)
        lengths = allowed.sum(dim=1)
        first = lengths.cumsum(0) - lengths
        symbols = symbol[first].unsqueeze(1).repeat(1, int(lengths.max()))
        symbols[sentence, torch.arange(len(symbol), device=symbol.device) - first[sentence]] = symbol
        return cls(symbols, lengths, allowed.shape[1])

    def keep(self, sentences: Int[Tensor, " kept"]) -> "AllowedTokens":
        """The lists of some of the sentences."""
        return AllowedTokens(self.symbols[sentences], self.lengths[sentences], self.vocabulary)

    def join(self, other: "AllowedTokens") -> "AllowedTokens":
        """These lists, then another's."""
        longest = max(self.symbols.shape[1], other.symbols.shape[1])
        wide = [_widen(each.symbols, longest) for each in (self, other)]
        return AllowedTokens(torch.cat(wide), torch.cat([self.lengths, other.lengths]), self.vocabulary)

    def together(self) -> Int64[Tensor, " columns"]:
        """The union of the lists, in ascending order."""
        found = torch.zeros(self.vocabulary, dtype=torch.bool, device=self.symbols.device)
        return found.index_fill(0, self.symbols.flatten(), True).nonzero().squeeze(1)


@final
@dataclass(frozen=True)
class LogitColumns:
    """Scores of which symbol ``v`` has column ``columns[v]``, where any sentence may write it; each only its own."""

    allowed: AllowedTokens
    columns: Int64[Tensor, " vocabulary"]

    @classmethod
    def of(cls, allowed: AllowedTokens, symbols: Int64[Tensor, " columns"]) -> "LogitColumns":
        """Column i has the scores of ``symbols[i]``, and every symbol of the lists has one."""
        columns = symbols.new_zeros(allowed.vocabulary)
        return cls(allowed, columns.index_copy(0, symbols, torch.arange(len(symbols), device=symbols.device)))

    @classmethod
    def whole(cls, allowed: AllowedTokens) -> "LogitColumns":
        """Every symbol of the vocabulary has a column."""
        return cls(allowed, torch.arange(allowed.vocabulary, device=allowed.symbols.device))

    def spread(self, scores: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows vocabulary"]:
        """The scores over the vocabulary, minus infinity where a sentence may not write a symbol."""
        symbols = self.allowed.symbols.repeat_interleave(len(scores) // len(self.allowed.lengths), dim=0)
        nothing = scores.new_full((len(scores), self.allowed.vocabulary), -torch.inf)
        return nothing.scatter(1, symbols, scores.gather(1, self.columns[symbols]))


@final
@dataclass(frozen=True)
class Choices:
    """What each row of a beam may be continued with, where that is little: one of a few lists, which rows share.

    Row i may be continued with nothing but list ``which[i]``, or with anything where that is -1. List k is
    ``symbols[first[k] : first[k + 1]]``, in ascending order.
    """

    which: Int64[Tensor, " rows"]
    first: Int64[Tensor, " bounds"]
    symbols: Int64[Tensor, " listed"]

    def keep(self, scores: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows vocabulary"]:
        """The scores, minus infinity where a row may not be continued with a symbol."""
        bound = self.which >= 0
        kinds = self.which[bound]
        lengths = self.first.diff()[kinds]
        rows = bound.nonzero().squeeze(1).repeat_interleave(lengths)
        # The place of each cell in `symbols`: where its list begins, and how far behind that it is.
        begins = self.first[kinds] - (lengths.cumsum(0) - lengths)
        places = begins.repeat_interleave(lengths) + torch.arange(len(rows))
        cells = rows.to(scores.device), self.symbols[places].to(scores.device)
        kept = torch.where(bound.to(scores.device).unsqueeze(1), -torch.inf, scores)
        return kept.index_put(cells, scores[cells])


def join_allowed(one: AllowedTokens | None, other: AllowedTokens | None) -> AllowedTokens | None:
    """The lists of two groups of sentences, where such are known; of both or of neither."""
    assert (one is None) == (other is None), "some sentences have lists and some have none"
    return None if one is None or other is None else one.join(other)


def _widen(symbols: Tensor, longest: int) -> Tensor:
    missing = longest - symbols.shape[1]
    return torch.cat([symbols, symbols[:, :1].expand(-1, missing)], dim=1) if missing else symbols
