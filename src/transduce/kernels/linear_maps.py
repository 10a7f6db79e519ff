"""Linear maps in training: several of the same rows side by side, as one product."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, final

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels.native import call, has_native, multiplies_narrow_numbers

_MOST: Final = 3  # maps that the C++ kernel takes at once
_NONE: Final = [0] * _MOST
# Weights, biases, the gradients of both, outputs; inputs. Packed faster than a ctypes structure is filled.
_MAPS: Final = struct.Struct(f"={5 * _MOST + 1}q")


def linear_maps(
    x: Float[Tensor, "*rows inputs"],
    weights: Sequence[Float[Tensor, "_ inputs"]],
    biases: Sequence[Float[Tensor, " _"] | None],
) -> Float[Tensor, "*rows all_outputs"]:
    """X W^T + b of every map, side by side, in autocast's type where that is on; all maps have a bias, or none."""
    if torch.is_autocast_enabled("cpu") and has_map_rows(torch.get_autocast_dtype("cpu"), x, *weights):
        rows = x.to(torch.bfloat16).flatten(end_dim=-2).contiguous()
        result: Tensor = _LinearMaps.apply(rows, len(weights), *weights, *biases)  # type: ignore[no-untyped-call]
        return result.view(*x.shape[:-1], result.shape[-1])
    if len(weights) == 1:
        return F.linear(x, weights[0], biases[0])
    known = [bias for bias in biases if bias is not None]
    return F.linear(x, torch.cat(list(weights)), torch.cat(known) if known else None)


def has_map_rows(dtype: torch.dtype, x: Tensor, *weights: Tensor) -> bool:
    """Whether ``map_rows`` is there, can take such tensors, and is the fastest; ``dtype`` is what x is rounded to."""
    return (
        dtype == torch.bfloat16
        and has_native(x, *weights)
        and _multiplies_by_vectors()
        and len(weights) <= _MOST
        and x.numel() > 0
        and all(weight.dtype == torch.float32 and weight.is_contiguous() for weight in weights)
    )


@lru_cache
def _multiplies_by_vectors() -> bool:
    """Matrix units, where there are any, are faster than vectors of whatever instructions."""
    return multiplies_narrow_numbers() and not torch.cpu.get_capabilities().get("amx_bf16")


def lay_down(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None] = (),
    of_weights: Sequence[Tensor] = (),
    of_biases: Sequence[Tensor] = (),
) -> bytes:
    """Where the kernel finds all maps' weights and biases and puts their gradients, and their sizes.

    The tensors must outlive its use.
    """
    numbers = []
    for tensors in weights, biases, of_weights, of_biases:
        numbers += [0 if each is None else each.data_ptr() for each in tensors]
        numbers += _NONE[len(tensors) :]
    numbers += [weight.shape[0] for weight in weights]
    return _MAPS.pack(*numbers, *_NONE[len(weights) :], weights[0].shape[1])


def map_rows(x: BFloat16[Tensor, "rows inputs"], maps: bytes, width: int) -> BFloat16[Tensor, "rows all_outputs"]:
    """What the maps make of rows that lie end to end."""
    y = x.new_empty(len(x), width)
    call("map_rows", None, x, maps, y, len(x))
    return y


def map_rows_backward(
    gradient: BFloat16[Tensor, "rows all_outputs"],
    x: BFloat16[Tensor, "rows inputs"],
    maps: bytes,
    of_x: BFloat16[Tensor, "rows inputs"] | None,
    *,
    add: bool = False,
) -> None:
    """Write the gradients: weights' and biases' over what is there, or with ``add`` beside it."""
    call("map_rows_backward", None, gradient, x, maps, of_x, len(x), add)


@final
class _LinearMaps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        count: int,
        *parameters: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x, *parameters)
        ctx.count = count
        weights, biases = _part(parameters, count)
        return map_rows(x, lay_down(weights, biases), sum(weight.shape[0] for weight in weights))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, *parameters = ctx.saved_tensors
        weights, biases = _part(parameters, ctx.count)
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weights = [torch.empty_like(weight) for weight in weights]
        of_biases = [torch.empty_like(bias) for bias in biases if bias is not None]
        map_rows_backward(gradient.contiguous(), x, lay_down(weights, biases, of_weights, of_biases), of_x)
        none: list[Tensor | None] = [None] * ctx.count
        return of_x, None, *of_weights, *(of_biases or none)


def _part(parameters: Sequence[Tensor | None], count: int) -> tuple[list[Tensor], Sequence[Tensor | None]]:
    """Weights, and biases."""
    return [weight for weight in parameters[:count] if weight is not None], parameters[count:]
