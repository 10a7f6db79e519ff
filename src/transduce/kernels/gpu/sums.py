"""Sums over the rows of a matrix: biases' gradients."""
# mypy: disable-error-code="misc, untyped-decorator, import-not-found, import-untyped"

from typing import Final, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS: Final = 32
_COLUMNS: Final = 128
_BLOCKS: Final = 8  # of rows, in each program: fewer where there are few rows


def sum_rows(x: Tensor) -> Tensor:
    """The sums of the columns of ``x`` (rows, columns) in float32, always in the same order."""
    rows, columns = x.shape
    programs = max(1, -(-rows // (_ROWS * _BLOCKS)))
    parts = x.new_empty(programs, columns, dtype=torch.float32)
    _sum_rows[(triton.cdiv(columns, _COLUMNS), programs)](x, parts, rows, columns, _ROWS, _COLUMNS, _BLOCKS)
    return parts.sum(0) if programs > 1 else parts[0]


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _sum_rows(x, parts, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for block in range(BLOCKS):
        row = ((part * BLOCKS + block) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
        inside = (row < rows) & (column < columns)[None, :]
        total += tl.load(x + row * columns + column[None, :], mask=inside, other=0).to(tl.float32)
    tl.store(parts + part * columns + column, tl.sum(total, 0), mask=column < columns)
