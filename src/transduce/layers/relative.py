"""Relative positions (Shaw et al. 2018)."""

from typing import final

import torch
from torch import nn

from transduce.config import ModelConfig
from transduce.kernels import Relative


@final
class RelativePositions(nn.Module):
    """A vector for each distance of key and query from -k to k, for keys and for values, shared by a layer's heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        distances = 2 * config.max_relative_distance + 1
        self.keys = nn.Parameter(torch.empty(distances, config.d_k))
        self.values = nn.Parameter(torch.empty(distances, config.d_v))
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def vectors(self) -> Relative:
        """The vectors as attention reads them."""
        return Relative(self.keys, self.values)
