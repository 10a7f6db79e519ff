"""A projection without the outputs that no sentence at hand may write."""

from dataclasses import dataclass
from typing import final

from jaxtyping import Int64
from torch import Tensor

from transduce.kernels import Columns, PackedMatrix, Writable, select_outputs


@final
@dataclass(frozen=True)
class Narrowed:
    """The part of a projection that some sentences' lists take; symbol v's score is its output ``places[v]``.

    It serves these sentences, and any of them alone.
    """

    matrix: PackedMatrix
    places: Int64[Tensor, " vocabulary"]

    @classmethod
    def of(cls, projection: PackedMatrix, writable: Writable) -> "Narrowed":
        """The outputs of all the lists, in ascending order."""
        symbols = writable.together()
        return cls(select_outputs(projection, symbols), Columns.of(writable, symbols).places)
