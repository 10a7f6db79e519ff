"""Weights that a compatibility function of queries and keys has of its own (section 3.2.1)."""

import math

import torch
from torch import nn

from transduce.config import ModelConfig


def additive_weights(config: ModelConfig) -> nn.Parameter | None:
    """The w of w tanh(q + k), for every head (Bahdanau et al. 2015); None for other functions.

    The hidden layer's own maps of query and key are the heads' projections.
    """
    if config.compatibility != "additive":
        return None
    limit = math.sqrt(6 / (config.d_k + 1))
    return nn.Parameter(torch.empty(config.heads, config.d_k).uniform_(-limit, limit))


def bilinear_weights(config: ModelConfig) -> nn.Parameter | None:
    """The W of q W k, for every head (Luong et al. 2015); None for other functions."""
    if config.compatibility != "multiplicative":
        return None
    limit = math.sqrt(3 / config.d_k)
    return nn.Parameter(torch.empty(config.heads, config.d_k, config.d_k).uniform_(-limit, limit))
