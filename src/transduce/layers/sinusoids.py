"""Sinusoids of position (section 3.5)."""

import math
from typing import assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config.model import SinusoidLayout, SinusoidRange


def sinusoids(
    positions: Int[Tensor, "*positions"], d_model: int, layout: SinusoidLayout, range_: SinusoidRange
) -> Float[Tensor, "*positions model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).

    ``layout`` says where the sines and cosines stand: interleaved as in the formula, or all sines before all cosines.
    ``range_`` says whether the wavelengths end before 10000 2 pi, as in the formula, or with it, as in tensor2tensor:
    10000^(i / (d_model / 2 - 1)).
    """
    # In float64: the angle of a far position in float32 would be off by more than a bfloat16's last digit.
    angles = positions.unsqueeze(-1) * _rates(d_model, range_).to(positions.device)
    return _lay_out(torch.sin(angles).float(), torch.cos(angles).float(), layout)


def sinusoid_shift(k: int, d_model: int, layout: SinusoidLayout, range_: SinusoidRange) -> Float[Tensor, "model model"]:
    """The linear map M of PE(pos + k) = M PE(pos), for every position (section 3.5): float64, shape (d_model, d_model).

    Each pair of sine and cosine turns by its own angle: sin(a + b) = cos(b) sin(a) + sin(b) cos(a), and
    cos(a + b) = -sin(b) sin(a) + cos(b) cos(a).
    """
    angles = k * _rates(d_model, range_)
    places = torch.arange(d_model, dtype=torch.float64)
    sines, cosines = (side.long() for side in _halves(places, layout))
    shift = torch.zeros(d_model, d_model, dtype=torch.float64)
    shift[sines, sines] = shift[cosines, cosines] = torch.cos(angles)
    shift[sines, cosines] = torch.sin(angles)
    shift[cosines, sines] = -torch.sin(angles)
    return shift


def _rates(d_model: int, range_: SinusoidRange) -> Float[Tensor, " pairs"]:
    """The angle by which each pair turns from one position to the next, in float64."""
    pairs = torch.arange(d_model // 2, dtype=torch.float64)
    match range_:
        case "open":
            steps = d_model / 2
        case "closed":
            steps = d_model / 2 - 1
        case _:
            assert_never(range_)
    return torch.exp(pairs * (-math.log(10000.0) / steps))


def _lay_out(sines: Tensor, cosines: Tensor, layout: SinusoidLayout) -> Tensor:
    match layout:
        case "interleaved":
            return torch.stack((sines, cosines), dim=-1).flatten(-2)
        case "concatenated":
            return torch.cat((sines, cosines), dim=-1)
        case _:
            assert_never(layout)


def _halves(x: Tensor, layout: SinusoidLayout) -> tuple[Tensor, Tensor]:
    """The sines' and the cosines' places."""
    match layout:
        case "interleaved":
            return x[0::2], x[1::2]
        case "concatenated":
            return x[: len(x) // 2], x[len(x) // 2 :]
        case _:
            assert_never(layout)
