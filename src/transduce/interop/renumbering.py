"""Another model's ids as ours, and back.

Ours begin with the special symbols: ``<pad>`` 0, ``<s>`` 1, ``</s>`` 2, ``<unk>`` 3. The other symbols keep their
order. So rows of embeddings, and what belongs to an output symbol, are permuted; nothing else of a model knows ids.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from transduce.config import BadInputError
from transduce.text.tokenizer import SPECIAL_SYMBOLS

_NONE: Final = -1
_BEGIN: Final = 1
# Added to the logit of a symbol that is never written: its share of the softmax is some e^-100, which changes no other
# one in float32. Not more, as label smoothing asks for the logarithm of that share.
NEVER: Final = -100.0


@final
@dataclass(frozen=True)
class Renumbering:
    """``rows[i]`` is the other model's id of our symbol i, or -1 where it has no such symbol; ``size`` its vocabulary.

    Of a symbol that several of ours come from, the ``owner`` is that which goes back.
    """

    rows: tuple[int, ...]
    owners: tuple[bool, ...]
    size: int

    @classmethod
    def of(
        cls,
        size: int,
        *,
        pad: int | None,
        begin: int | None,
        end: int,
        unknown: int | None,
        unused: Collection[int] = (),
        copies: Sequence[int] = (),
    ) -> "Renumbering":
        """That of a vocabulary of ``size`` symbols, by what its special symbols are.

        Args:
            size: How many symbols the other vocabulary has.
            pad: The symbol behind shorter sentences.
            begin: What the decoder reads first: Marian's is its padding, fairseq's its end. Where it has another
                meaning too, our begin symbol is a copy of its row.
            end: The symbol that ends sources and targets.
            unknown: What stands for text without a symbol.
            unused: Symbols that no text has and no model reads, which are left out.
            copies: The symbols whose rows symbols of ours behind all others are copies of.

        Raises:
            BadInputError: An id lies outside the vocabulary.
        """
        roles = (pad, begin, end, unknown)
        outside = [index for index in (*roles, *unused, *copies) if index is not None and not 0 <= index < size]
        if outside:
            raise BadInputError(f"a symbol has the id {outside[0]}, where the vocabulary has {size:,} symbols")
        copied = begin in (pad, end, unknown)
        taken = {index for index in (*roles, *unused) if index is not None}
        rest = [index for index in range(size) if index not in taken]
        rows = [*(_NONE if index is None else index for index in roles), *rest, *copies]
        owners = [place < 4 + len(rest) and row != _NONE for place, row in enumerate(rows)]
        owners[_BEGIN] = owners[_BEGIN] and not copied
        return cls(tuple(rows), tuple(owners), size)

    def symbols(self, names: Sequence[str], copies: Sequence[str] = ()) -> list[str]:
        """Our vocabulary in the order of its ids, from the other one's; ``copies`` are the names of those.

        Raises:
            BadInputError: A symbol of text has the name of one of our special symbols, or two have one name.
        """
        last = len(self.rows) - len(copies)
        ours = [*SPECIAL_SYMBOLS, *(names[row] for row in self.rows[len(SPECIAL_SYMBOLS) : last]), *copies]
        if len(set(ours)) < len(ours):
            ((twice, _),) = Counter(ours).most_common(1)
            raise BadInputError(f"two symbols of the vocabulary are {twice!r}")
        return ours

    def permute(self, matrix: Float[Tensor, "theirs *model"]) -> Float[Tensor, "ours *model"]:
        """Rows in our order; zeros of what the other model has not."""
        rows = torch.tensor(self.rows)
        permuted = matrix[rows.clamp(min=0)]
        permuted[rows == _NONE] = 0
        return permuted

    def bias(self, bias: Float[Tensor, " theirs"]) -> Float[Tensor, " ours"]:
        """The bias of the logits in our order; copies, and what the other model has not, are as good as never written.

        So the probabilities of all other symbols are what they were: a copy's logit alone would take its share.
        """
        return self.permute(bias) + torch.where(torch.tensor(self.owners), 0.0, NEVER)

    @property
    def needs_bias(self) -> bool:
        """Whether our model has output symbols that the other one has not, so that its logits need a bias."""
        return not all(self.owners)

    def restore(self, matrix: Float[Tensor, "ours *model"]) -> Float[Tensor, "theirs *model"]:
        """Rows in the other model's order; zeros of what ours has left out."""
        restored = matrix.new_zeros(self.size, *matrix.shape[1:])
        own = torch.tensor(self.owners)
        restored[torch.tensor(self.rows)[own]] = matrix[own]
        return restored

    @property
    def ours(self) -> Int64[Tensor, " theirs"]:
        """For each of the other model's ids, ours; -1 of what ours has left out."""
        found = torch.full((self.size,), _NONE)
        own = torch.tensor(self.owners)
        found[torch.tensor(self.rows)[own]] = torch.arange(len(self.rows))[own]
        return found

    @property
    def theirs(self) -> Int64[Tensor, " ours"]:
        """For each of our ids, the other model's; -1 of what it has not."""
        return torch.tensor(self.rows)
