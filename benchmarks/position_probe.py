"""How much of its position an activation still tells, whatever symbol stands there."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.activations import Activations

# Directions with less than about this share of the mean variance count little: they would not survive rounding.
_RIDGE = 1e-6


@final
@dataclass(frozen=True)
class Legibility:
    """``named``: the share of positions that a linear probe names right on sentences that it has not seen.

    ``similarity``: the cosines of two positions' mean activations (less the mean of all), each over sentences of its
    own, so that nothing but the position is shared: about 0 everywhere where positions tell nothing.
    """

    named: float
    similarity: Float[Tensor, "positions positions"]


def read_positions(known: Activations, fresh: Activations) -> Legibility:
    """What can be read of the positions of ``fresh`` activations by a probe that was fitted to the ``known`` ones."""
    known, fresh = known.double(), fresh.double()
    return Legibility(named=_named(known, fresh), similarity=_directions(known) @ _directions(fresh).T)


def _directions(x: Activations) -> Float[Tensor, "positions model"]:
    """Where the positions' mean activations lie, seen from the mean of all."""
    means = x.mean(dim=0)
    return torch.nn.functional.normalize(means - means.mean(dim=0), dim=-1)


def _named(known: Activations, fresh: Activations) -> float:
    """Ridge regression of the one-hot position, in closed form; the largest of its outputs names the position."""
    rows, length, width = known.shape
    middle = known.mean(dim=(0, 1))
    inputs = (known - middle).flatten(0, 1)
    wanted = torch.eye(length, dtype=inputs.dtype).repeat(rows, 1) - 1 / length
    products = inputs.T @ inputs
    ridge = _RIDGE * products.trace() / width * torch.eye(width, dtype=inputs.dtype)
    probe = torch.linalg.solve(products + ridge, inputs.T @ wanted)
    right = ((fresh - middle) @ probe).argmax(dim=-1) == torch.arange(length)
    return float(right.double().mean())
