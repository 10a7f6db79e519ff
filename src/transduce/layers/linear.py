"""The linear map as the published model starts it."""

from torch import nn


def glorot_linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A linear layer with Glorot uniform weights and zero bias."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
