"""Attention as other libraries compute it: a scaled product of heads that all have one width."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.layers import MultiHeadAttention


@final
@dataclass(frozen=True)
class Projection:
    """A linear map."""

    weight: Float[Tensor, "outputs inputs"]
    bias: Float[Tensor, " outputs"] | None

    @classmethod
    def concatenate(cls, *maps: "Projection") -> "Projection":
        """All maps of one input as one."""
        biases = [each.bias for each in maps if each.bias is not None]
        return cls(torch.cat([each.weight for each in maps]), torch.cat(biases) if biases else None)


@final
@dataclass(frozen=True)
class Projections:
    """What an attention maps its inputs and its result by, and what its scores are multiplied by.

    ``width`` is that of every head's queries, keys and values: where ours differ, the smaller ones are padded with
    zeros, which change no product. A multiplicative compatibility, q W k, is part of the queries' map: (x W^Q) W.
    """

    query: Projection
    key: Projection
    value: Projection
    output: Projection
    scale: float
    width: int

    @classmethod
    def of(cls, attention: MultiHeadAttention) -> "Projections":
        """Those of an attention whose scores are products."""
        heads, scoring, output = attention.heads, attention.scoring(), attention.output
        width, biased = max(heads.d_k, heads.d_v), attention.query.bias is not None
        query, key, value = (_rows(each, heads.number) for each in (attention.query, attention.key, attention.value))
        if scoring.bilinear is not None:
            query = scoring.bilinear.transpose(1, 2) @ query
        # An output's columns are what its heads' rows are to the other maps.
        columns = output.weight.view(output.out_features, heads.number, heads.d_v)
        return cls(
            query=_join(query, width, biased=biased),
            key=_join(key, width, biased=biased),
            value=_join(value, width, biased=biased),
            output=Projection(F.pad(columns, (0, width - heads.d_v)).flatten(1), output.bias),
            scale=scoring.scale,
            width=width,
        )


def _rows(linear: nn.Linear, heads: int) -> Float[Tensor, "heads width inputs"]:
    """Each head's map; its bias, where it has one, is one more column."""
    bias = [] if linear.bias is None else [linear.bias.unsqueeze(1)]
    return torch.cat([linear.weight, *bias], dim=1).view(heads, -1, linear.in_features + len(bias))


def _join(rows: Float[Tensor, "heads width inputs"], width: int, *, biased: bool) -> Projection:
    """The heads' maps in one matrix, each ``width`` wide."""
    joined = F.pad(rows, (0, 0, 0, width - rows.shape[1])).flatten(0, 1)
    return Projection(joined[:, :-1].contiguous(), joined[:, -1].contiguous()) if biased else Projection(joined, None)
