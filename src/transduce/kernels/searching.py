"""Rounds of a search without Python between them (searching.cpp): a decoder's step, then ``FlatBeams.advance``."""

from jaxtyping import Float32
from torch import Tensor

from transduce.kernels.allowed import Choices, LogitColumns
from transduce.kernels.interface import Pace
from transduce.kernels.native import call
from transduce.kernels.products import PrepackedMatrix
from transduce.kernels.rounds import FlatBeams
from transduce.kernels.transformer import DecoderBuffers, NativeStack


def search(
    stack: NativeStack,
    projection: PrepackedMatrix,
    buffers: DecoderBuffers,
    beams: FlatBeams,
    logits: Float32[Tensor, "rows outputs"],
    columns: LogitColumns | None,
    rounds: int,
    seconds: float,
    choices: Choices | None = None,
) -> int:
    """Make one round or more, and so many at most; how many were made. With ``choices``, which are a round's, one.

    They end with that in which all sentences' outputs are certain, so many ``seconds`` are over, a sentence has come to
    its limit or the beams have ``failed``. Rows of a sentence whose outputs are certain read nothing any more. Lengths
    and ancestors of the buffers are changed in place; ``logits`` is room for a step's scores.
    """
    one = buffers.address(stack, beams.newest)
    round_, lists = beams.prepare(logits, columns, choices)
    pace = Pace(rounds=min(rounds if choices is None else 1, beams.room), seconds=seconds)
    assert pace.rounds > 0
    call("search", buffers.memory.keys.dtype, stack.address, projection.address, one, round_, lists, pace)
    beams.longest += pace.made
    return int(pace.made)
