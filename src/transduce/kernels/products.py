"""Linear maps by prepacked matrices, in three number formats: the products of decoding.

int8 is exact arithmetic on rounded numbers. A weight is round(w / s) s with one s for each output, whose largest
absolute value stands for 127. An input is round(x / t) t with one t for each row, whose range, 0 in it, has 255 steps:
after a ReLU twice as many as a sign would leave it. Sums are whole numbers, so that they do not depend on the order
of the sum; and a row's scale is its own, so that products are batch-invariant.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, final

import torch
from jaxtyping import Float, Float32, Int, Int8, Int16, Int32, Shaped
from torch import Tensor
from torch.nn import functional as F

from transduce.config.model import Activation
from transduce.kernels.feed_forward import activate
from transduce.kernels.interface import ACTIVATIONS, MatrixAddress
from transduce.kernels.native import address, call, has_native

Format = Literal["float32", "bfloat16", "int8"]
# A shape and ``dtype=`` to a tensor that is still to be filled.
Empty = Callable[..., Tensor]

# As the C++ kernels know them: number, type, and how many inputs one instruction multiplies (products.h).
_NUMBERS: Final[dict[Format, int]] = {"float32": 0, "bfloat16": 1, "int8": 2}
_TYPES: Final[dict[Format, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
_GROUPS: Final[dict[Format, int]] = {"float32": 1, "bfloat16": 2, "int8": 4}
_PANEL: Final = 64
# Outputs that are prepacked together: what is made of them on the way is no larger than a processor's caches.
_AT_A_TIME: Final = 16 * _PANEL
# The kernels' instructions multiply inputs without a sign by weights with one.
_LARGEST_INPUT: Final = 255
_LARGEST_WEIGHT: Final = 127
# Rows of less are rows of zeros: 255 by this is still a number.
_LEAST_RANGE: Final = 1e-36
# So many products of 255 x 127 fit in 32 bits, in which the kernels add them up.
MOST_INPUTS: Final = 2**16


@final
@dataclass(frozen=True)
class PrepackedMatrix:
    """The weights of a linear map in panels of 64 outputs (products.h says how they lie); the last panel ends in zeros.

    What there is for each output is padded to whole panels. ``sums`` are those of an output's weights, in int8.
    """

    panels: Shaped[Tensor, "panels groups 64 group"]
    scales: Float32[Tensor, " padded"]
    sums: Int32[Tensor, " padded"]
    bias: Float32[Tensor, " padded"] | None
    outputs: int
    inputs: int
    format: Format
    address: MatrixAddress = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where the C++ kernels find it, as long as this object lives."""
        group = _GROUPS[self.format]
        panels = -(-self.outputs // _PANEL)
        found = MatrixAddress(
            address(self.panels, _TYPES[self.format], panels, -(-self.inputs // group), _PANEL, group),
            address(self.scales, torch.float32, panels * _PANEL),
            address(self.sums, torch.int32, panels * _PANEL),
            None if self.bias is None else address(self.bias, torch.float32, panels * _PANEL),
            *(self.outputs, self.inputs, _NUMBERS[self.format]),
        )
        object.__setattr__(self, "address", found)


def quantize_weights(
    weight: Float[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float32[Tensor, "outputs 1"]]:
    """Whole numbers q from -127 to 127 and a scale for each output: w is about q scale. Halves go to the even side."""
    weight = weight.float()
    top = weight.abs().amax(dim=-1, keepdim=True)
    inverse = torch.where(top > _LEAST_RANGE, _LARGEST_WEIGHT / top, 0.0)
    return (weight * inverse).round_().to(torch.int8), top / _LARGEST_WEIGHT


def quantize_inputs(
    x: Float[Tensor, "*rows inputs"],
) -> tuple[Int16[Tensor, "*rows inputs"], Float32[Tensor, "*rows 1"]]:
    """Whole numbers q and a scale for each row: x is about q scale. A row's q lie within 255 of each other and of 0."""
    x = x.float()
    low, high = x.amin(dim=-1, keepdim=True).clamp(max=0), x.amax(dim=-1, keepdim=True).clamp(min=0)
    range_ = high - low
    inverse = torch.where(range_ > _LEAST_RANGE, _LARGEST_INPUT / range_, 0.0)
    largest = _LARGEST_INPUT - (-low * inverse).round()  # both ends of a row may be rounded away from 0
    return (x * inverse).round_().minimum(largest).to(torch.int16), range_ / _LARGEST_INPUT


def multiply_whole(
    x: Int16[Tensor, "*rows inputs"], weight: Int8[Tensor, "outputs inputs"]
) -> Int[Tensor, "*rows outputs"]:
    """The exact sums of whole products."""
    # In float64, as integers have no fast product everywhere: exact up to 2^53.
    return F.linear(x.double(), weight.double()).long()


def prepack(
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None,
    format_: Format,
    empty: Empty | None = None,
) -> PrepackedMatrix:
    """A linear map's matrix made ready for products in a number format; nothing of it has a gradient.

    ``empty`` gives the memory that it stays in.
    """
    weight = weight.detach()
    empty = weight.new_empty if empty is None else empty
    outputs, inputs = weight.shape
    group, padding = _GROUPS[format_], -outputs % _PANEL
    sizes = (outputs + padding) // _PANEL, -(-inputs // group), _PANEL, group
    panels = empty(sizes, dtype=_TYPES[format_])
    scales, sums = (empty((outputs + padding,), dtype=dtype).zero_() for dtype in (torch.float32, torch.int32))
    # A group is four bytes in every format: such are quickly moved as one number.
    groups = panels.view(torch.int32).squeeze(3)
    for start in range(0, outputs, _AT_A_TIME):
        part = weight[start : start + _AT_A_TIME]
        numbers, own = quantize_weights(part) if format_ == "int8" else (part.to(_TYPES[format_]), part.new_ones(()))
        padded = F.pad(numbers, (0, -inputs % group, 0, -len(part) % _PANEL))
        if format_ == "int8":
            sums[start : start + len(padded)] = padded.sum(dim=1, dtype=torch.int32)
        scales[start : start + len(part)] = own.flatten()
        of_panels = padded.view(torch.int32).view(-1, _PANEL, sizes[1])
        groups[start // _PANEL :][: len(of_panels)] = of_panels.transpose(1, 2)
    padded_bias = None
    if bias is not None:
        padded_bias = empty((outputs + padding,), dtype=torch.float32).zero_()
        padded_bias[:outputs] = bias.detach()
    return PrepackedMatrix(panels, scales, sums, padded_bias, outputs, inputs, format_)


def unpack(matrix: PrepackedMatrix) -> Shaped[Tensor, "outputs inputs"]:
    """The matrix's numbers as they were before ``prepack``."""
    return matrix.panels.transpose(1, 2).flatten(2).flatten(0, 1)[: matrix.outputs, : matrix.inputs]


def weights_of(matrix: PrepackedMatrix) -> Float[Tensor, "outputs inputs"]:
    """The weights that the matrix stands for, in a layout of their own: of int8, whole numbers times their scales."""
    numbers = unpack(matrix)
    if matrix.format != "int8":
        return numbers.contiguous()
    return numbers.float() * matrix.scales[: matrix.outputs].unsqueeze(1)


def select_outputs(matrix: PrepackedMatrix, outputs: Int[Tensor, " kept"]) -> PrepackedMatrix:
    """The map to some of the outputs, in this order: each is the same number, bit for bit."""
    kept = F.pad(outputs, (0, -len(outputs) % _PANEL))  # the last panel's rest is computed, and never written
    # Every group of inputs is four bytes in every format.
    groups = matrix.panels.view(torch.int32)[kept // _PANEL, :, kept % _PANEL]
    panels = groups.view(-1, _PANEL, *groups.shape[1:]).transpose(1, 2).contiguous()
    return PrepackedMatrix(
        panels.view(matrix.panels.dtype),
        matrix.scales[kept],
        matrix.sums[kept],
        None if matrix.bias is None else matrix.bias[kept],
        len(outputs),
        matrix.inputs,
        matrix.format,
    )


def linear(
    x: Float32[Tensor, "*rows inputs"], matrix: PrepackedMatrix, *, activation: Activation | None = None
) -> Float32[Tensor, "*rows outputs"]:
    """X W^T + b, or the activation of that, inputs rounded to the matrix's format and sums in float32 (int8: exact)."""
    if has_native(x) and (matrix.format != "int8" or matrix.inputs <= MOST_INPUTS):
        result, x = x.new_empty(*x.shape[:-1], matrix.outputs), x.contiguous()
        place = address(x, torch.float32, *x.shape[:-1], matrix.inputs)
        rows = result.numel() // matrix.outputs
        to = address(result, torch.float32, *result.shape)
        call("multiply", None, place, matrix.address, to, rows, ACTIVATIONS[activation])
        return result
    result = _linear_plainly(x, matrix)
    return result if activation is None else activate(result, activation)


def _linear_plainly(x: Tensor, matrix: PrepackedMatrix) -> Tensor:
    weight, outputs = unpack(matrix), matrix.outputs
    if matrix.format == "int8":
        whole, scale = quantize_inputs(x)
        result = multiply_whole(whole, weight).float() * (scale * matrix.scales[:outputs])
    else:
        # A product of two bfloat16 is a float32.
        result = F.linear(x.to(weight.dtype).float(), weight.float())
    return result if matrix.bias is None else result + matrix.bias[:outputs]
