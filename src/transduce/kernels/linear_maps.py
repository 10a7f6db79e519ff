"""Linear maps in training: several of the same rows concatenated, as one product."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Final, Literal, final

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import gpu
from transduce.kernels.chain import Link, chain
from transduce.kernels.interface import ACTIVATIONS, MOST_MAPS, MapsAddress
from transduce.kernels.native import address, call, has_low_precision_products, has_matrix_units, has_native
from transduce.kernels.rounded_weights import join_rounded

# An activation that is part of a product: its gradient can be told from its result.
FusedActivation = Literal["relu"] | None

_NONE: Final = [0] * MOST_MAPS
_MANY_ONES: Final = 2**14  # rows that are summed up: a multiple of them is kept
# Weights, biases, the gradients of both, outputs; inputs. Packed faster than a ctypes structure is filled.
_MAPS: Final = struct.Struct(f"={5 * MOST_MAPS + 1}q")


def linear_maps(
    x: Float[Tensor, "*rows inputs"],
    weights: Sequence[Float[Tensor, "_ inputs"]],
    biases: Sequence[Float[Tensor, " _"] | None],
) -> Float[Tensor, "*rows all_outputs"]:
    """X W^T + b of every map, concatenated, in autocast's type where that is on; all maps have a bias, or none."""
    if maps_rows(x, *weights):
        return chain_rows(x, Maps(weights, biases))
    if len(weights) == 1:
        return F.linear(x, weights[0], biases[0])
    known = [bias for bias in biases if bias is not None]
    return F.linear(x, torch.cat(list(weights)), torch.cat(known) if known else None)


def maps_rows(x: Tensor, *weights: Tensor) -> bool:
    """Whether ``chain_rows`` can map what autocast makes of such tensors, and is the fastest."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # tensors without storage know no autocast
        return False
    dtype = torch.get_autocast_dtype(device)
    return has_map_rows(dtype, x, *weights) or (dtype == torch.bfloat16 and gpu.has_triton(x, *weights))


def chain_rows(x: Float[Tensor, "*rows inputs"], *links: Link) -> Float[Tensor, "*rows outputs"]:
    """``chain`` on bfloat16, whatever the shape of ``x``."""
    rows = x.to(torch.bfloat16)
    if x.dim() == 2:
        return chain(rows.contiguous(), *links)
    result = chain(rows.flatten(end_dim=-2).contiguous(), *links)
    return result.view(*x.shape[:-1], result.shape[-1])


def has_map_rows(dtype: torch.dtype, x: Tensor, *weights: Tensor) -> bool:
    """Whether ``map_rows`` is there, can take such tensors, and is the fastest; ``dtype`` is what x is rounded to."""
    return (
        dtype == torch.bfloat16
        and has_native(x, *weights)
        and _unit() is not None
        and len(weights) <= MOST_MAPS
        and x.numel() > 0
        and all(weight.dtype == torch.float32 and weight.is_contiguous() for weight in weights)
    )


@lru_cache
def _unit() -> Literal["tiles", "vectors"] | None:
    """What multiplies; None: PyTorch's products are the fastest, which use matrix units where our kernels do not."""
    if has_matrix_units():
        return "tiles"
    with_units = torch.cpu.get_capabilities().get("amx_bf16")
    return "vectors" if has_low_precision_products() and not with_units else None


def in_tiles() -> bool:
    """Whether the maps of training are multiplied in tiles."""
    return _unit() == "tiles"


def _kernel(name: str) -> str:
    return f"{name}_by_tiles" if in_tiles() else name


def lay_down(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None] = (),
    of_weights: Sequence[Tensor] = (),
    of_biases: Sequence[Tensor] = (),
) -> MapsAddress:
    """Where the kernel finds all maps' weights and biases and puts their gradients, and their sizes.

    The tensors must outlive its use.
    """
    outputs, inputs = [weight.shape[0] for weight in weights], weights[0].shape[1]
    numbers = []
    for tensors, columns in ((weights, (inputs,)), (biases, ()), (of_weights, (inputs,)), (of_biases, ())):
        numbers += [
            0 if each is None else address(each, torch.float32, rows, *columns)
            for each, rows in zip(tensors, outputs, strict=False)
        ]
        numbers += _NONE[len(tensors) :]
    return MapsAddress.from_buffer_copy(_MAPS.pack(*numbers, *outputs, *_NONE[len(outputs) :], inputs))


def map_rows(
    x: BFloat16[Tensor, "rows inputs"], maps: MapsAddress, *, activation: FusedActivation = None
) -> BFloat16[Tensor, "rows all_outputs"]:
    """The activation of what the maps make of rows."""
    rows, width = len(x), sum(maps.outputs)
    y = x.new_empty(rows, width)
    addresses = address(x, torch.bfloat16, rows, maps.inputs), address(y, torch.bfloat16, rows, width)
    call(_kernel("map_rows"), None, addresses[0], maps, addresses[1], rows, ACTIVATIONS[activation])
    return y


def map_rows_backward(
    gradient: BFloat16[Tensor, "rows all_outputs"],
    x: BFloat16[Tensor, "rows inputs"],
    maps: MapsAddress,
    of_x: BFloat16[Tensor, "rows inputs"] | None,
    *,
    add: bool = False,
    input_activation: FusedActivation = None,
) -> None:
    """Write the gradients: weights' and biases' over what is there, or with ``add`` beside it.

    ``x`` is what ``input_activation`` has made, and ``of_x`` becomes the gradient of what it was made of.
    """
    rows, shape = len(x), (len(x), maps.inputs)
    addresses = address(gradient, x.dtype, rows, sum(maps.outputs)), address(x, torch.bfloat16, *shape)
    to = None if of_x is None else address(of_x, x.dtype, *shape)
    call(_kernel("map_rows_backward"), None, *addresses, maps, to, rows, add, ACTIVATIONS[input_activation])


def wide_product(a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    """A B; on a CUDA device in float32, as it is summed up there, whatever the factors' type."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.mm(a, b)


def add_wide_product(
    to: Float[Tensor, "rows columns"], a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"]
) -> None:
    """Add A B to float32's numbers; on a CUDA device the product begins with these (tried with torch 2.11)."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        torch.addmm(to, a, b, out_dtype=torch.float32, out=to)
    else:
        to += torch.mm(a, b)


def _sum_rows(x: Tensor) -> Tensor:
    """Of each column, as a product: faster there than a sum (27 and 37 microseconds became 15 with 22,000 x 512)."""
    return wide_product(_ones(-(-len(x) // _MANY_ONES) * _MANY_ONES, x.dtype, x.device)[:, : len(x)], x)[0]


@cache  # a CUDA graph may read what is here for as long as it lives
def _ones(number: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, number, dtype=dtype, device=device)


@final
@dataclass(frozen=True)
class Maps:
    """``linear_maps`` as a part of a chain, of bfloat16, and an activation; ``input_activation`` made the input."""

    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]
    activation: FusedActivation = None
    input_activation: FusedActivation = None

    @cached_property
    def others(self) -> Sequence[Tensor | None]:
        """All weights, then all biases."""
        return *self.weights, *self.biases

    def forward(self, x: Tensor, others: Sequence[Tensor | None]) -> tuple[Tensor, Sequence[Tensor]]:
        """On a CUDA device, the matrix in bfloat16 is kept."""
        weights, biases = self._part(others)
        if gpu.has_triton(x):
            matrix = join_rounded(weights, x.dtype)
            bias = None if None in biases else join_rounded(biases, x.dtype)
            if bias is not None and self.activation == "relu":
                return torch.ops.aten._addmm_activation(bias, x, matrix.T), (matrix,)
            y = torch.mm(x, matrix.T) if bias is None else torch.addmm(bias, x, matrix.T)
            return y if self.activation is None else y.relu_(), (matrix,)
        return map_rows(x, lay_down(weights, biases), activation=self.activation), ()

    def backward(
        self, gradient: Tensor, x: Tensor, others: Sequence[Tensor | None], kept: Sequence[Tensor], *, want_x: bool
    ) -> tuple[Tensor | None, Sequence[Tensor | None]]:
        """In one call, on a processor."""
        weights, biases = self._part(others)
        if gpu.has_triton(x):
            of_x = torch.mm(gradient, *kept) if want_x else None
            if of_x is not None and self.input_activation is not None:
                of_x = torch.ops.aten.threshold_backward(of_x, x, 0)
            of_weights = self._split(wide_product(gradient.T, x), weights)
            return of_x, [*of_weights, *(biases if None in biases else self._split(_sum_rows(gradient), weights))]
        of_x = torch.empty_like(x) if want_x else None
        of_weights = [torch.empty_like(weight) for weight in weights]
        of_biases = [torch.empty_like(bias) for bias in biases if bias is not None]
        maps = lay_down(weights, biases, of_weights, of_biases)
        map_rows_backward(gradient, x, maps, of_x, input_activation=self.input_activation)
        return of_x, [*of_weights, *(of_biases or biases)]

    @staticmethod
    def _split(joined: Tensor, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return [joined] if len(weights) == 1 else torch.split(joined, [len(weight) for weight in weights])

    def _part(self, others: Sequence[Tensor | None]) -> tuple[list[Tensor], Sequence[Tensor | None]]:
        count = len(self.weights)
        return [weight for weight in others[:count] if weight is not None], others[count:]
