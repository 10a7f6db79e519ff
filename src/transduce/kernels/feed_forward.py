"""Position-wise feed-forward networks (section 3.3) and their activations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never, final

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.nn import functional as F

from transduce.config.model import Activation
from transduce.kernels import gpu
from transduce.kernels.dropout import WHOLE, Dropped, Dropping, dropout
from transduce.kernels.interface import ACTIVATIONS
from transduce.kernels.linear_maps import Maps, chain_rows, linear_maps, maps_rows
from transduce.kernels.native import address, call


def feed_forward(
    x: Float[Tensor, "*positions inputs"],
    inner: Maps,
    outer: Maps,
    activation: Activation = "relu",
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "*positions outputs"]:
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2, f being the activation; dropout comes after it.

    Where ``inner`` has two maps, the network is gated (Shazeer 2020): FFN(x) = (f(x G + c) * (x W_1 + b_1)) W_2 + b_2
    with the first one's G and c.
    """
    gated = len(inner.weights) == 2
    # Other activations are C++'s alone as parts of a chain.
    there = (activation == "relu" and not gated) or not gpu.has_triton(x)
    if there and maps_rows(x, *inner.weights) and maps_rows(x, *outer.weights):
        seeds = dropped.rows(*x.shape[:-1], device=x.device)
        between = [] if seeds is None else [Dropping(dropped, seeds)]
        if activation == "relu" and not gated:
            first, last = replace(inner, activation=activation), replace(outer, input_activation=activation)
            return chain_rows(x, first, *between, last)
        return chain_rows(x, inner, Activating(activation, gated), *between, outer)
    hidden = activate(linear_maps(x, inner.weights, inner.biases), activation, gated=gated)
    return linear_maps(dropout(hidden, dropped), outer.weights, outer.biases)


def activate(
    x: Float[Tensor, "*positions inputs"], activation: Activation, *, gated: bool = False
) -> Float[Tensor, "*positions hidden"]:
    """f(x); with ``gated``, f(a) * b of the two halves a and b of ``x``."""
    if gated:
        gate, hidden = x.chunk(2, dim=-1)
        return activate(gate, activation) * hidden
    match activation:
        case "relu":
            return torch.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu":
            return F.silu(x)
        case _:
            assert_never(activation)


@final
@dataclass(frozen=True)
class Activating:
    """``activate`` in C++ as a part of a chain."""

    activation: Activation
    gated: bool

    @property
    def others(self) -> Sequence[Tensor]:
        """None."""
        return ()

    def forward(
        self, x: BFloat16[Tensor, "rows inputs"], others: Sequence[Tensor | None]
    ) -> tuple[BFloat16[Tensor, "rows hidden"], Sequence[Tensor]]:
        """Nothing is kept but ``x``."""
        rows, width = x.shape[0], x.shape[1] // (2 if self.gated else 1)
        y = x.new_empty(rows, width)
        addresses = address(x, torch.bfloat16, *x.shape), address(y, torch.bfloat16, rows, width)
        call("activate", None, *addresses, rows, width, ACTIVATIONS[self.activation], self.gated)
        return y, ()

    def backward(
        self, gradient: Tensor, x: Tensor, others: Sequence[Tensor | None], kept: Sequence[Tensor], *, want_x: bool
    ) -> tuple[Tensor | None, Sequence[Tensor]]:
        """In one pass over both."""
        if not want_x:
            return None, ()
        of_x, (rows, width) = torch.empty_like(x), gradient.shape
        addresses = address(gradient, torch.bfloat16, rows, width), address(x, torch.bfloat16, *x.shape)
        to = address(of_x, torch.bfloat16, *x.shape)
        call("activate_backward", None, *addresses, to, rows, width, ACTIVATIONS[self.activation], self.gated)
        return of_x, ()
