"""The attention in every decoder layer of ConvS2S (Gehring et al. 2017, section 3.3)."""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transduce.layers.convolution import draw_map

# Of a sum of two parts of variance 1, so that it has variance 1, too (section 3.5).
HALF: Final = math.sqrt(0.5)


@final
@dataclass(frozen=True)
class Attended:
    """What the encoder hands over: z, which queries are compared with, and (z + e) sqrt(1/2), which is summed up."""

    keys: Float[Tensor, "batch source embedding"]
    values: Float[Tensor, "batch source embedding"]
    real: Bool[Tensor, "batch source"]


@final
class MultiStepAttention(nn.Module):
    """c_i = sum_j a_ij (z_j + e_j) with a_ij = softmax_j(d_i z_j), d_i = W h_i + b + g_i.

    h_i is a decoder layer's gated convolution, g_i the embedding of the symbol that it read last, z the encoder's
    output and e its input. Scaling as in section 3.5: sums of two by sqrt(1/2), and c by m sqrt(1/m), where m is the
    number of source symbols: it undoes that a mean of m independent vectors of variance 1 has variance 1 / m.
    """

    def __init__(self, channels: int, embedding: int, *, normalized: bool) -> None:
        super().__init__()
        self.query = draw_map(channels, embedding, std=math.sqrt(1 / channels), normalized=normalized)
        self.output = draw_map(embedding, channels, std=math.sqrt(1 / embedding), normalized=normalized)

    def ask(
        self, hidden: Float[Tensor, "*positions channels"], embedded: Float[Tensor, "*positions embedding"]
    ) -> Float[Tensor, "*positions embedding"]:
        """The queries d."""
        query: Tensor = (self.query(hidden) + embedded) * HALF
        return query

    def join(
        self, hidden: Float[Tensor, "*positions channels"], context: Float[Tensor, "*positions embedding"]
    ) -> Float[Tensor, "*positions channels"]:
        """What the layer goes on with: its own output and what was found."""
        joined: Tensor = (self.output(context) + hidden) * HALF
        return joined


def look_up(
    query: Float[Tensor, "batch queries embedding"], attended: Attended
) -> tuple[Float[Tensor, "batch queries embedding"], Float[Tensor, "batch queries source"]]:
    """C m sqrt(1/m) = c sqrt(m), and the weights; a source has one real symbol at least."""
    real = attended.real.unsqueeze(1)
    scores = (query @ attended.keys.transpose(1, 2)).masked_fill(~real, -torch.inf)
    weights = scores.softmax(dim=-1).to(attended.values.dtype)
    context = weights @ attended.values
    # The root of an integer would be of float32, and one of a count in fewer bits would be of another count.
    count = real.sum(dim=2, keepdim=True).to(torch.promote_types(context.dtype, torch.float32))
    return context * count.sqrt().to(context.dtype), weights
