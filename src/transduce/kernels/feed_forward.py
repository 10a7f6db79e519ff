"""Position-wise feed-forward networks (section 3.3) as one operation."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.kernels.dropout import WHOLE, Dropped, Dropping, dropout
from transduce.kernels.linear_maps import Maps, chain_rows, linear_maps, maps_rows


def feed_forward(
    x: Float[Tensor, "*positions inputs"], inner: Maps, outer: Maps, dropped: Dropped = WHOLE
) -> Float[Tensor, "*positions outputs"]:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2; dropout comes after the ReLU."""
    if maps_rows(x, *inner.weights) and maps_rows(x, *outer.weights):
        seeds = dropped.rows(*x.shape[:-1], device=x.device)
        between = [] if seeds is None else [Dropping(dropped, seeds)]
        return chain_rows(x, replace(inner, relu=True), *between, replace(outer, after_relu=True))
    hidden = dropout(torch.relu(linear_maps(x, inner.weights, inner.biases)), dropped)
    return linear_maps(hidden, outer.weights, outer.biases)
