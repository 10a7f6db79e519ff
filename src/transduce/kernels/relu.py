"""ReLU with dropout behind it, in place."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.dropout import dropout
from transduce.kernels.native import Dropout, call, has_native


def relu_dropout(x: Float[Tensor, "*positions width"], dropped: float) -> Float[Tensor, "*positions width"]:
    """dropout(max(0, x)); x is used up: its memory may hold the result."""
    if has_native(x) and x.is_contiguous():
        result: Tensor = _ReluDropout.apply(x, dropped)  # type: ignore[no-untyped-call]
        return result
    return dropout(torch.relu(x), dropped, training=True)


@final
class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: float) -> Tensor:  # noqa: ANN401 - torch gives the context no type
        chance = Dropout.of(dropped)
        call("relu_dropout", x.dtype, x, x.numel() // x.shape[-1], x.shape[-1], chance)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.scale = chance.scale
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (y,) = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_x = torch.empty_like(gradient)
        call("relu_dropout_backward", y.dtype, y, gradient, of_x, y.numel(), ctx.scale)
        return of_x, None
