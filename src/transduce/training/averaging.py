"""The mean of several checkpoints (section 6.1), which translates better than the last of them."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def average_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over all checkpoints, summed in float64, in the type of the first.

    Raises:
        ValueError: There is no checkpoint.
    """
    sums: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, tensor in weights.items():
            if name in sums:
                sums[name] += tensor
            else:
                sums[name], types[name] = tensor.double(), tensor.dtype
    if not count:
        raise ValueError("no checkpoints to average")
    return {name: (total / count).to(types[name]) for name, total in sums.items()}
