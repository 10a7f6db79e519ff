"""Dropout, residual sum and layer normalization (sections 3.1 and 5.4; Ba et al. 2016) in one pass."""

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels import gpu
from transduce.kernels.dropout import WHOLE, Dropped, dropout
from transduce.kernels.interface import AddNormAddress, AddNormBackwardAddress
from transduce.kernels.native import address, call, has_kernels_of, has_native

Rows = Float[Tensor, "*positions model"]


def add_norm(
    x: Rows,
    output: Rows | None,
    gain: Float[Tensor, " model"],
    bias: Float[Tensor, " model"],
    epsilon: float,
    dropped: Dropped,
    *,
    post: bool,
    output_bias: Float[Tensor, " model"] | None = None,
) -> tuple[Rows, Rows]:
    """The residual stream behind a sub-layer, and LayerNorm(sum) in the type that matrix products are computed in.

    The sum is x + dropout(output), or x without an output; ``output_bias`` is still to be added to that. The stream
    goes on as LayerNorm(sum) where the norm is ``post`` (as published), else as the sum.
    """
    dtype = _product_type(x)
    if output is not None and output_bias is not None and not (x.dtype == torch.float32 and gpu.has_triton(x)):
        output, output_bias = output + output_bias, None
    if x.dtype == torch.float32 and _has_kernels(dtype, x, gain, x if output is None else output):
        output = None if output is None else output.to(dtype).contiguous()
        seeds = None if output is None else dropped.rows(*x.shape[:-1], device=x.device)
        stream, ready = _AddNorm.apply(  # type: ignore[no-untyped-call]
            x.contiguous(), output, output_bias, gain, bias, seeds, epsilon, dropped, dtype, post
        )
        return stream, stream if ready is None else ready
    return _add_norm_plainly(x, output, gain, bias, epsilon, dropped, dtype, post)


def adds_output_bias(x: Tensor) -> bool:
    """Whether ``add_norm`` adds an output's bias in its own pass; ``x`` is what the sub-layer reads."""
    return gpu.has_triton(x) and (x.dtype == torch.float32 or torch.is_autocast_enabled(x.device.type))


def _has_kernels(dtype: torch.dtype, *tensors: Tensor) -> bool:
    return (has_kernels_of(dtype) and has_native(*tensors)) or gpu.has_triton(*tensors)


def _add_norm_plainly(
    x: Tensor,
    output: Tensor | None,
    gain: Tensor,
    bias: Tensor,
    epsilon: float,
    dropped: Dropped,
    dtype: torch.dtype,
    post: bool,
) -> tuple[Tensor, Tensor]:
    total = x if output is None else x + dropout(output, dropped)
    normalized = F.layer_norm(total, total.shape[-1:], gain, bias, epsilon)
    return normalized if post else total, normalized.to(dtype)


def _product_type(x: Tensor) -> torch.dtype:
    device = x.device.type
    # Tensors without storage know no autocast.
    return torch.get_autocast_dtype(device) if device != "meta" and torch.is_autocast_enabled(device) else x.dtype


@final
class _AddNorm(torch.autograd.Function):
    """With ``post``, it writes the norm in float32 and in ``dtype``, or once where these are the same."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        output: Tensor | None,
        output_bias: Tensor | None,
        gain: Tensor,
        bias: Tensor,
        seeds: Tensor | None,
        epsilon: float,
        dropped: Dropped,
        dtype: torch.dtype,
        post: bool,
    ) -> tuple[Tensor, Tensor | None]:
        total, ready = torch.empty_like(x), torch.empty_like(x, dtype=dtype)
        wide = torch.empty_like(x) if post and dtype != x.dtype else None
        made = _Made(total, x.new_empty(2, x.numel() // x.shape[-1]), ready, wide)
        if gpu.has_triton(x):
            from transduce.kernels.gpu.add_norm import add_norm as run  # noqa: PLC0415 - Triton is read where it is used

            run((x, output, output_bias, gain, bias, seeds), made, epsilon, (dropped.kept, dropped.scale))
        else:
            _run((x, output, gain, bias, seeds), made, epsilon, dropped)
        ctx.save_for_backward(total, made.statistics, gain, seeds)
        ctx.constants = dropped, dtype, output is not None, output_bias is not None, post
        ctx.set_materialize_grads(False)
        if not post:
            return total, ready
        return (ready, None) if wide is None else (wide, ready)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_stream: Tensor | None,
        of_ready: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        total, statistics, gain, seeds = ctx.saved_tensors
        dropped, dtype, has_output, has_output_bias, post = ctx.constants
        of_stream, of_ready = (g if g is None else g.contiguous() for g in (of_stream, of_ready))
        of_total, of_wide = (None, of_stream) if post else (of_stream, None)
        if of_wide is None and of_ready is None:
            of_ready = torch.zeros_like(total, dtype=dtype)
        given = of_total, of_wide, of_ready
        of_x = torch.empty_like(total)
        of_output = torch.empty_like(total, dtype=dtype) if has_output else None
        if gpu.has_triton(total):
            from transduce.kernels.gpu.add_norm import add_norm_backward as run  # noqa: PLC0415

            chance = dropped.kept, dropped.scale
            of_gain, of_bias, of_output_bias = run(
                (total, statistics, gain, seeds), given, (of_x, of_output), chance
            ).unbind()
        else:
            of_gain, of_bias = _run_backward((total, statistics, gain, seeds), given, (of_x, of_output), dropped)
            of_output_bias = None
        return of_x, of_output, of_output_bias if has_output_bias else None, of_gain, of_bias, *[None] * 5


class _Made(NamedTuple):
    """The sum in float32, each row's mean and 1 / deviation, and the norm in the products' type and in float32."""

    total: Tensor
    statistics: Tensor
    ready: Tensor
    wide: Tensor | None


def _run(
    given: tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor | None], made: _Made, epsilon: float, dropped: Dropped
) -> None:
    """In C++; ``given`` are x, output, gain, bias and seeds."""
    (x, output, gain, bias, seeds), whole, dtype = given, torch.float32, made.ready.dtype
    shape, columns = x.shape, x.shape[-1]
    rows = x.numel() // columns
    addresses = AddNormAddress(
        x=address(x, whole, *shape),
        out=None if output is None else address(output, dtype, *shape),
        sum=address(made.total, whole, *shape),
        y=address(made.ready, dtype, *shape),
        wide=None if made.wide is None else address(made.wide, whole, *shape),
        statistics=address(made.statistics, whole, 2, rows),
        gain=address(gain, whole, columns),
        bias=address(bias, whole, columns),
        rows=rows,
        d=columns,
        epsilon=epsilon,
    )
    call("add_norm", dtype, addresses, (WHOLE if seeds is None else dropped).chance(seeds, rows))


def _run_backward(
    kept: tuple[Tensor, Tensor, Tensor, Tensor | None],
    given: tuple[Tensor | None, Tensor | None, Tensor | None],
    wanted: tuple[Tensor, Tensor | None],
    dropped: Dropped,
) -> tuple[Tensor, Tensor]:
    """In C++; ``kept`` are the sum, the statistics, gain and seeds. Returns the gradients of gain and bias."""
    (total, statistics, gain, seeds), (of_total, of_wide, of_ready), (of_x, of_output) = kept, given, wanted
    whole, shape, columns = torch.float32, total.shape, total.shape[-1]
    rows = total.numel() // columns
    narrow = next((each.dtype for each in (of_ready, of_output) if each is not None), whole)
    of_gain, of_bias = gain.new_zeros(columns), gain.new_zeros(columns)
    addresses = AddNormBackwardAddress(
        sum=address(total, whole, *shape),
        statistics=address(statistics, whole, 2, rows),
        gain=address(gain, whole, columns),
        of_sum=None if of_total is None else address(of_total, whole, *shape),
        of_y=None if of_ready is None else address(of_ready, narrow, *shape),
        of_wide=None if of_wide is None else address(of_wide, whole, *shape),
        of_x=address(of_x, whole, *shape),
        of_out=None if of_output is None else address(of_output, narrow, *shape),
        of_gain=address(of_gain, whole, columns),
        of_bias=address(of_bias, whole, columns),
        rows=rows,
        d=columns,
    )
    call("add_norm_backward", narrow, addresses, dropped.chance(seeds, rows))
    return of_gain, of_bias
