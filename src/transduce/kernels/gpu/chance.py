"""Which elements a dropout keeps: the random numbers of ``kernels.seeds``, as Triton draws them."""
# mypy: disable-error-code="untyped-decorator"

from typing import no_type_check

import triton
import triton.language as tl

# Elements lie in quads: a draw of 64 bits serves four adjacent columns.


@triton.jit
@no_type_check
def keeps(seed, quads, parts, kept):
    """Whether columns 4 ``quads`` + ``parts`` of the row with this seed stay; ``kept`` of 65,536 levels do."""
    words = (seed + quads.to(tl.int64) * -7046029254386353131).to(tl.uint64)  # config.splitmix.STEP
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    words = words ^ (words >> 31)
    levels = (words >> (parts * 16).to(tl.uint64)).to(tl.int16).to(tl.int32)
    return levels < kept - 32768
