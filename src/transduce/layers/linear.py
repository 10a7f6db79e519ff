"""The linear map as the published models start it."""

import math
from dataclasses import dataclass, replace
from typing import assert_never, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config.model import Initializer
from transduce.kernels import Format, Maps, PrepackedMatrix, adds_output_bias, linear, linear_maps, prepack


@final
class Linear(nn.Linear):
    """What an ``nn.Linear`` is, by the fastest product that there is."""

    def forward(self, x: Float[Tensor, "*positions inputs"]) -> Float[Tensor, "*positions outputs"]:
        """X W^T + b."""
        return linear_maps(x, [self.weight], [self.bias])


def make_linear(inputs: int, outputs: int, *, bias: bool, initializer: Initializer) -> Linear:
    """A linear layer with zero bias and uniform weights.

    glorot_uniform: up to sqrt(6 / (inputs + outputs)), of variance 2 / (inputs + outputs) (Glorot and Bengio 2010).
    unit_scaling: up to sqrt(3 / inputs), of variance 1 / inputs, which keeps that of what it maps.
    """
    layer = Linear(inputs, outputs, bias=bias)
    match initializer:
        case "glorot_uniform":
            nn.init.xavier_uniform_(layer.weight)
        case "unit_scaling":
            limit = math.sqrt(3 / inputs)
            nn.init.uniform_(layer.weight, -limit, limit)
        case _:
            assert_never(initializer)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def join_maps(*layers: nn.Module) -> Maps | None:
    """Linear layers of the same rows, as one; None where one of them is prepacked."""
    linears = [layer for layer in layers if isinstance(layer, Linear)]
    if len(linears) < len(layers):
        return None
    return Maps([layer.weight for layer in linears], [layer.bias for layer in linears])


@final
@dataclass(frozen=True)
class PendingBias:
    """What a sub-layer's last map made, whose bias is still to be added: in the pass that joins it to the stream.

    There the bias's gradient is summed up beside others', where a map would need a product of its own for it.
    """

    rows: Float[Tensor, "*positions model"]
    bias: Float[Tensor, " model"]


def split_bias(x: Tensor, after: Maps) -> tuple[Maps, Tensor | None]:
    """A sub-layer's last map without its bias, and that; as it is, where nothing is gained; ``x`` is what it reads."""
    (bias,) = after.biases
    return (after, None) if bias is None or not adds_output_bias(x) else (replace(after, biases=[None]), bias)


def with_pending(rows: Tensor, bias: Tensor | None) -> Tensor | PendingBias:
    """What a map made, and the bias that ``split_bias`` took from it, if it did."""
    return rows if bias is None else PendingBias(rows, bias)


@final
class PrepackedLinear(nn.Module):
    """What an ``nn.Linear`` computes, its weights and inputs rounded to a number format; never trained."""

    def __init__(self, matrix: PrepackedMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, x: Float[Tensor, "*positions inputs"]) -> Float[Tensor, "*positions outputs"]:
        """X W^T + b."""
        return linear(x, self.matrix)


@torch.no_grad()
def prepack_linears(module: nn.Module, format_: Format) -> None:
    """Replace all linear layers by prepacked ones."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PrepackedLinear(prepack(child.weight, child.bias, format_)))
        else:
            prepack_linears(child, format_)
