"""What constraints say of next symbols, as ranking can use it: a few that may come, a few that may not, or a mask."""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import BadInputError
from transduce.kernels import Choices
from transduce.search.constraint import Restriction

# Where constraints ban at most so many continuations of a sentence, it is ranked with as many candidates more, and the
# banned ones are dropped: much faster than a matrix of all log-probabilities.
_FEW_BANNED: Final = 128
_NONE: Final = np.empty(0, np.int64)


def bounds(restrictions: Sequence[Sequence[Restriction]]) -> Sequence[Restriction | None] | None:
    """The restriction of each hypothesis, where none has several and none bans; else None."""
    found: list[Restriction | None] = []
    for row in restrictions:
        if not row:
            found.append(None)
        elif len(row) == 1 and row[0].only:
            found.append(row[0])
        else:
            return None
    return found


def choices(rows: Sequence[Restriction | None], vocabulary: int) -> Choices:
    """What each row may be continued with, anything where there is None; rows in the same state share a list."""
    kinds: dict[int, int] = {id(None): -1}  # by what the restriction is, not by what it says: much sooner found
    lists: list[NDArray[np.int64]] = [_NONE]
    first, which = [0], []
    for restriction in rows:
        if (kind := kinds.get(id(restriction))) is None:
            assert restriction is not None
            if not restriction.only:
                raise BadInputError(
                    "a constraint with bounds = True names symbols that may not come: give all that may, with "
                    "only=True, or leave bounds out"
                )
            lowest, highest = restriction.span
            if lowest < 0 or highest >= vocabulary:
                _check_symbols(restriction.index, vocabulary)
            kind = kinds[id(restriction)] = len(lists) - 1
            lists.append(ids := restriction.ids)
            first.append(first[-1] + len(ids))
        which.append(kind)
    return Choices(
        *map(torch.from_numpy, (np.array(which, np.int64), np.array(first, np.int64), np.concatenate(lists)))
    )


def bans(restrictions: Sequence[Sequence[Restriction]]) -> Sequence[Collection[int]] | None:
    """What each hypothesis must not be continued with; None where that is no short list."""
    if any(each.only for row in restrictions for each in row):
        return None
    if sum(len(each.symbols) for row in restrictions for each in row) > _FEW_BANNED:
        return None
    return [set().union(*(each.symbols for each in row)) for row in restrictions]


def mask(scores: Float[Tensor, "rows vocabulary"], rows: Sequence[Sequence[Restriction]]) -> None:
    """Apply all restrictions of each row, in place: what may not come has minus infinity."""
    for layer in range(max(map(len, rows))):
        for only in (False, True):
            some = [(row, each[layer]) for row, each in enumerate(rows) if len(each) > layer]
            _restrict(scores, [(row, restriction) for row, restriction in some if restriction.only == only], only=only)


def _restrict(
    scores: Float[Tensor, "rows vocabulary"], restrictions: Sequence[tuple[int, Restriction]], *, only: bool
) -> None:
    """Apply a restriction to each of some rows, in place."""
    if not restrictions:
        return
    rows = torch.tensor([row for row, _ in restrictions])
    lengths = torch.tensor([len(restriction.index) for _, restriction in restrictions])
    symbols = torch.cat([restriction.index for _, restriction in restrictions])
    _check_symbols(symbols, scores.shape[1])
    cells = rows.repeat_interleave(lengths).to(scores.device), symbols.to(scores.device)
    if only:
        kept = scores[cells]
        scores[rows.to(scores.device)] = -torch.inf
        scores[cells] = kept
    else:
        scores[cells] = -torch.inf


def _check_symbols(symbols: Int[Tensor, " symbols"], vocabulary: int) -> None:
    unknown = symbols[(symbols < 0) | (symbols >= vocabulary)]
    if len(unknown):
        raise BadInputError(
            f"a constraint names symbol {int(unknown[0])}, but the vocabulary has those from 0 to "
            f"{vocabulary - 1}: take ids of the model's own target tokenizer"
        )
