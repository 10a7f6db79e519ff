"""Dropout, residual sum and layer normalization (sections 3.1 and 5.4; Ba et al. 2016) in one pass."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels.dropout import dropout
from transduce.kernels.native import Dropout, call, has_native

Rows = Float[Tensor, "*positions model"]


def add_norm(
    x: Rows,
    output: Rows | None,
    gain: Float[Tensor, " model"],
    bias: Float[Tensor, " model"],
    epsilon: float,
    dropped: float,
) -> tuple[Rows, Rows, Rows]:
    """The sum x + dropout(output), its LayerNorm, and that LayerNorm in the type that matrix products are computed in.

    Without an output, the sum is x. The first two are for sums to come, the third for a matrix product.
    """
    narrow = _product_type(x)
    if x.dtype == torch.float32 and has_native(x, gain, x if output is None else output):
        output = None if output is None else output.to(narrow).contiguous()
        total, wide, ready = _AddNorm.apply(  # type: ignore[no-untyped-call]
            x.contiguous(), output, gain, bias, epsilon, dropped, narrow
        )
        return total, wide, ready
    total = x if output is None else x + dropout(output, dropped, training=True)
    wide = F.layer_norm(total, total.shape[-1:], gain, bias, epsilon)
    return total, wide, wide.to(narrow)


def _product_type(x: Tensor) -> torch.dtype:
    device = x.device.type
    # Tensors without storage know no autocast.
    return torch.get_autocast_dtype(device) if device != "meta" and torch.is_autocast_enabled(device) else x.dtype


@final
class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        output: Tensor | None,
        gain: Tensor,
        bias: Tensor,
        epsilon: float,
        dropped: float,
        narrow: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        total, wide, ready = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x, dtype=narrow)
        statistics = x.new_empty(2, x.numel() // x.shape[-1])
        chance = Dropout.of(dropped if output is not None else 0.0)
        sizes = statistics.shape[1], x.shape[-1]
        call("add_norm", narrow, x, output, total, ready, wide, *statistics, gain, bias, *sizes, epsilon, chance)
        ctx.save_for_backward(total, statistics, gain)
        ctx.constants = chance, sizes, narrow, output is not None
        ctx.set_materialize_grads(False)
        return total, wide, ready

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_total: Tensor | None,
        of_wide: Tensor | None,
        of_ready: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        total, statistics, gain = ctx.saved_tensors
        chance, sizes, narrow, has_output = ctx.constants
        if of_wide is None and of_ready is None:
            of_ready = torch.zeros_like(total, dtype=narrow)
        of_total, of_wide, of_ready = (g if g is None else g.contiguous() for g in (of_total, of_wide, of_ready))
        of_x = torch.empty_like(total)
        of_output = torch.empty_like(total, dtype=narrow) if has_output else None
        of_norm = torch.zeros(2, sizes[1])
        call(
            "add_norm_backward",
            narrow,
            *(total, *statistics, gain, of_total, of_ready, of_wide),
            *(of_x, of_output, *of_norm, *sizes, chance),
        )
        return of_x, of_output, *of_norm, None, None, None
