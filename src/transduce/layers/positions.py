"""Positional encodings (section 3.5)."""

import math
from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.config.model import SinusoidLayout


def sinusoids(
    positions: Int[Tensor, "*positions"], d_model: int, layout: SinusoidLayout
) -> Float[Tensor, "*positions model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).

    ``layout`` says where the sines and cosines stand: interleaved as in the formula, or all sines before all cosines.
    """
    pairs = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    # In float64: the angle of a far position in float32 would be off by more than a bfloat16's last digit.
    angles = positions.unsqueeze(-1) * torch.exp(pairs * (-math.log(10000.0) / d_model))
    waves = torch.sin(angles).float(), torch.cos(angles).float()
    match layout:
        case "interleaved":
            return torch.stack(waves, dim=-1).flatten(-2)
        case "concatenated":
            return torch.cat(waves, dim=-1)
        case _:
            assert_never(layout)


@final
class SinusoidalPositions(nn.Module):
    """A table of sinusoids that grows with the longest sequence seen; not a parameter, and never saved."""

    def __init__(self, config: ModelConfig, length: int = 512) -> None:
        super().__init__()
        self.d_model, self.layout = config.d_model, config.sinusoid_layout
        self.register_buffer("table", sinusoids(torch.arange(length), self.d_model, self.layout), persistent=False)
        self.table: Tensor

    def forward(self, positions: Int[Tensor, "*positions"], longest: int) -> Float[Tensor, "*positions model"]:
        """The encodings of positions below ``longest``."""
        if longest > self.table.shape[0]:
            further = torch.arange(2 * longest, device=self.table.device)
            self.table = sinusoids(further, self.d_model, self.layout).to(self.table.dtype)
        return self.table[positions]
