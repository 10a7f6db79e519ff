"""Dropout (Srivastava et al. 2014) from cheap random bits."""

from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LEVELS: Final = 2**16


def dropout(x: Float[Tensor, "*shape"], probability: float, *, training: bool) -> Float[Tensor, "*shape"]:
    """Zero each element with ``probability`` and scale the others so that the expectation stays, while training.

    On CPUs, torch draws one float for each element, which was among the costliest operations of a step; there, one
    draw of 64 bits serves four elements. The probability is then the nearest multiple of 2^-16 above zero,
    and the scale is that multiple's.
    """
    if not training or probability == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    dropped: Tensor = _CheapDropout.apply(x, probability)  # type: ignore[no-untyped-call]
    return dropped


class _CheapDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:  # noqa: ANN401 - torch gives the context no type
        kept_levels = min(max(1, round((1 - probability) * _LEVELS)), _LEVELS - 1)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        draws = words.view(torch.int16)[: x.numel()].view(x.shape)
        kept = (draws < kept_levels - _LEVELS // 2).to(x.dtype)
        ctx.save_for_backward(kept)
        ctx.scale = _LEVELS / kept_levels
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None
