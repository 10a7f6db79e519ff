"""A projection without the outputs that no sentence at hand may write."""

from dataclasses import dataclass
from typing import final

from jaxtyping import Int64
from torch import Tensor

from transduce.kernels import AllowedTokens, LogitColumns, PrepackedMatrix, select_outputs


@final
@dataclass(frozen=True)
class ShortlistedProjection:
    """The part of a projection that some sentences' lists take; symbol v's score is its output ``places[v]``.

    It serves these sentences, and any of them alone.
    """

    matrix: PrepackedMatrix
    places: Int64[Tensor, " vocabulary"]

    @classmethod
    def of(cls, projection: PrepackedMatrix, allowed: AllowedTokens) -> "ShortlistedProjection":
        """The outputs of all the lists, in ascending order."""
        symbols = allowed.together()
        return cls(select_outputs(projection, symbols), LogitColumns.of(allowed, symbols).places)
