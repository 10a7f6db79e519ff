"""The linear map with weights in a narrower format."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.kernels import Format, linear, prepack


@final
class PrepackedLinear(nn.Module):
    """What an ``nn.Linear`` computes, its weights and inputs rounded to a number format; never trained."""

    def __init__(self, linear_: nn.Linear, format_: Format) -> None:
        super().__init__()
        self.matrix = prepack(linear_.weight, linear_.bias, format_)

    def forward(self, x: Float[Tensor, "*positions inputs"]) -> Float[Tensor, "*positions outputs"]:
        """X W^T + b."""
        return linear(x, self.matrix)


@torch.no_grad()
def prepack_linears(module: nn.Module, format_: Format) -> None:
    """Put packed maps in the place of all linear ones."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PrepackedLinear(child, format_))
        else:
            prepack_linears(child, format_)
