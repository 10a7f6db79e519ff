"""Dropout, residual sum and layer normalization in one pass, and its gradients in another."""
# mypy: disable-error-code="untyped-decorator"

from typing import no_type_check

import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.gpu.chance import keeps
from transduce.kernels.gpu.launch import programs_for, quads_of, warps_of

Chance = tuple[int, float]  # how many of 65,536 levels stay, and what is multiplied with these


def add_norm(
    given: tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor, Tensor | None],
    made: tuple[Tensor, Tensor, Tensor, Tensor | None],
    epsilon: float,
    chance: Chance,
) -> None:
    """Write LayerNorm(x + dropout(output + its bias)) of x, output, output's bias, gain, bias and seeds.

    Made are the sum, each row's mean and 1 / deviation (2, rows), and the norm in the products' type and in float32.
    """
    (x, output, output_bias, _, _, seeds), columns = given, given[0].shape[-1]
    rows, quads = x.numel() // columns, quads_of(columns)
    if rows:
        _add_norm[(rows,)](
            *(*given, *made),
            *(rows, columns, epsilon, *chance),
            *(output is not None, output_bias is not None, seeds is not None, made[3] is not None, quads),
            num_warps=warps_of(quads),
        )


@triton.jit(do_not_specialize=["rows", "kept"])
@no_type_check
def _add_norm(
    x, output, output_bias, gain, bias, seeds, total, statistics, ready, wide, rows, columns, epsilon, kept, scale,
    HAS_OUTPUT: tl.constexpr, HAS_OUTPUT_BIAS: tl.constexpr, HAS_SEEDS: tl.constexpr, HAS_WIDE: tl.constexpr,
    QUADS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    quads, parts = tl.arange(0, QUADS)[:, None], tl.arange(0, 4)[None, :]
    column = quads * 4 + parts
    inside, place = column < columns, row * columns + column
    values = tl.load(x + place, mask=inside, other=0)
    if HAS_OUTPUT:
        added = tl.load(output + place, mask=inside, other=0).to(tl.float32)
        if HAS_OUTPUT_BIAS:
            added += tl.load(output_bias + column, mask=inside, other=0)
        if HAS_SEEDS:
            added = tl.where(keeps(tl.load(seeds + row), quads, parts, kept), added * scale, 0.0)
        values += added
    mean = tl.sum(tl.sum(values, 1), 0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(tl.sum(centred * centred, 1), 0) / columns + epsilon)
    tl.store(total + place, values, mask=inside)
    tl.store(statistics + row, mean)
    tl.store(statistics + rows + row, inverse)
    normed = centred * inverse * tl.load(gain + column, mask=inside, other=0)
    normed += tl.load(bias + column, mask=inside, other=0)
    tl.store(ready + place, normed.to(ready.dtype.element_ty), mask=inside)
    if HAS_WIDE:
        tl.store(wide + place, normed, mask=inside)


def add_norm_backward(
    kept: tuple[Tensor, Tensor, Tensor, Tensor | None],
    given: tuple[Tensor | None, Tensor | None, Tensor | None],
    wanted: tuple[Tensor, Tensor | None],
    chance: Chance,
) -> Tensor:
    """Write the gradients of x and output, and return those of gain, bias and output's bias, (3, columns).

    Kept are the sum, the statistics, gain and seeds; given the gradients of the sum, and of the norm in float32 and in
    the products' type.
    """
    total, seeds, columns = kept[0], kept[3], kept[0].shape[-1]
    rows, quads = total.numel() // columns, quads_of(columns)
    programs = programs_for(rows, total.device)
    sums = total.new_empty(programs, 3, columns)
    if rows:
        _add_norm_backward[(programs,)](
            *(*kept, *given, *wanted, sums),
            *(rows, columns, programs, *chance),
            *(each is not None for each in (*given, wanted[1], seeds)),
            quads,
            num_warps=warps_of(quads),
        )
    return sums.sum(0)


@triton.jit(do_not_specialize=["rows", "programs", "kept"])
@no_type_check
def _add_norm_backward(
    total, statistics, gain, seeds, of_total, of_wide, of_ready, of_x, of_output, sums,
    rows, columns, programs, kept, scale,
    HAS_TOTAL: tl.constexpr, HAS_WIDE: tl.constexpr, HAS_READY: tl.constexpr, HAS_OUTPUT: tl.constexpr,
    HAS_SEEDS: tl.constexpr, QUADS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    quads, parts = tl.arange(0, QUADS)[:, None], tl.arange(0, 4)[None, :]
    column = quads * 4 + parts
    inside = column < columns
    gains = tl.load(gain + column, mask=inside, other=0)
    of_gain = tl.zeros([QUADS, 4], tl.float32)
    of_bias = tl.zeros([QUADS, 4], tl.float32)
    of_output_bias = tl.zeros([QUADS, 4], tl.float32)
    for each in range(first, rows, programs):
        row = tl.cast(each, tl.int64)
        place = row * columns + column
        gradient = tl.zeros([QUADS, 4], tl.float32)
        if HAS_WIDE:
            gradient += tl.load(of_wide + place, mask=inside, other=0)
        if HAS_READY:
            gradient += tl.load(of_ready + place, mask=inside, other=0).to(tl.float32)
        inverse = tl.load(statistics + rows + row)
        normed = tl.load(total + place, mask=inside, other=0) - tl.load(statistics + row)
        normed = tl.where(inside, normed * inverse, 0.0)
        of_bias += gradient
        of_gain += gradient * normed
        gradient *= gains
        level = tl.sum(tl.sum(gradient, 1), 0) / columns
        along = tl.sum(tl.sum(gradient * normed, 1), 0) / columns
        gradient = (gradient - level - normed * along) * inverse
        if HAS_TOTAL:
            gradient += tl.load(of_total + place, mask=inside, other=0)
        tl.store(of_x + place, gradient, mask=inside)
        if HAS_OUTPUT:
            if HAS_SEEDS:
                gradient = tl.where(keeps(tl.load(seeds + row), quads, parts, kept), gradient * scale, 0.0)
            of_output_bias += gradient
            tl.store(of_output + place, gradient.to(of_output.dtype.element_ty), mask=inside)
    sums += first * 3 * columns
    tl.store(sums + column, of_gain, mask=inside)
    tl.store(sums + columns + column, of_bias, mask=inside)
    tl.store(sums + 2 * columns + column, of_output_bias, mask=inside)
