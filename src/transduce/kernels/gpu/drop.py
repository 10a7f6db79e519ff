"""Dropout in one pass."""
# mypy: disable-error-code="untyped-decorator"

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.gpu.chance import keeps
from transduce.kernels.gpu.launch import quads_of, warps_of


def drop(x: Tensor, seeds: Tensor, kept: int, scale: float) -> Tensor:
    """``x`` (..., columns) without what rows with these ``seeds`` (...) leave out, the others times ``scale``."""
    x, y, columns = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format), x.shape[-1]
    if rows := seeds.numel():
        quads = quads_of(columns)
        _drop[(rows,)](x, seeds, y, columns, kept, scale, quads, num_warps=warps_of(quads))
    return y


@triton.jit(do_not_specialize=["kept"])
@no_type_check
def _drop(x, seeds, y, columns, kept, scale, QUADS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    quads, parts = tl.arange(0, QUADS)[:, None], tl.arange(0, 4)[None, :]
    column = quads * 4 + parts
    stays = keeps(tl.load(seeds + row), quads, parts, kept)
    values = tl.load(x + row * columns + column, mask=column < columns, other=0).to(tl.float32)
    tl.store(
        y + row * columns + column, tl.where(stays, values * scale, 0.0).to(y.dtype.element_ty), mask=column < columns
    )
