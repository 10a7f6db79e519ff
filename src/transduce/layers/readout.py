"""What a recurrent decoder makes of its state to score the next symbol."""

from typing import assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config.recurrent import Readout
from transduce.layers.dropout import Dropout
from transduce.layers.linear import make_linear


@final
class ReadoutLayer(nn.Module):
    """Its parts [s; c; y] as one hidden layer, with dropout.

    tanh: tanh(W [s; c; y] + b). maxout: t_j = max(u_2j, u_2j+1) of u = W [s; c; y] + b, which is twice as wide
    (Goodfellow et al. 2013; Bahdanau et al. 2015, appendix A.2.2). state: s itself, without the other parts.
    """

    def __init__(self, kind: Readout, inputs: int, size: int, dropout: Dropout) -> None:
        super().__init__()
        self.kind = kind
        outputs = 2 * size if kind == "maxout" else size
        self.map = None if kind == "state" else make_linear(inputs, outputs, bias=True, initializer="glorot_uniform")
        self.dropout = dropout

    def forward(
        self, *parts: Float[Tensor, "*positions _"], seeds: Int[Tensor, "*positions"] | None
    ) -> Float[Tensor, "*positions size"]:
        """Of all positions."""
        made = parts[0] if self.map is None else self.activate(self.map(torch.cat(parts, dim=-1)))
        read: Tensor = self.dropout(made, seeds)
        return read

    def activate(self, mapped: Float[Tensor, "*positions outputs"]) -> Float[Tensor, "*positions size"]:
        """What comes of W [s; c; y] + b."""
        match self.kind:
            case "tanh":
                return torch.tanh(mapped)
            case "maxout":
                return mapped.view(*mapped.shape[:-1], mapped.shape[-1] // 2, 2).amax(dim=-1)
            case "state":
                return mapped
            case _:
                assert_never(self.kind)
