"""Embeddings and the pre-softmax projection, which share one matrix (section 3.4)."""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.kernels import PrepackedMatrix, linear


@final
class Embedding(nn.Module):
    """One matrix of shape (vocabulary, d_model): rows embed symbols, and score them as output.

    Without ``scaled``, embeddings are the rows as they are.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        # N(0, 1 / d_model): scaled by sqrt(d_model) on the way in, the embeddings have unit variance.
        nn.init.normal_(self.weight, std=1 / math.sqrt(d_model))
        # The matrix as output in a low-precision format, where one was asked for.
        self.prepacked: PrepackedMatrix | None = None

    def forward(self, ids: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions model"]:
        """sqrt(d_model) E[ids], or E[ids] where they are not scaled."""
        embedded = F.embedding(ids, self.weight)
        return embedded if self.scale == 1 else embedded * self.scale

    def project(
        self, hidden: Float[Tensor, "*positions model"], bias: Float[Tensor, " vocabulary"] | None = None
    ) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of every symbol of the vocabulary; prepacked, the matrix has its bias with it."""
        return F.linear(hidden, self.weight, bias) if self.prepacked is None else linear(hidden, self.prepacked)


def append_bias(
    hidden: Float[Tensor, "tokens model"],
    weight: Float[Tensor, "vocabulary model"],
    bias: Float[Tensor, " vocabulary"] | None,
) -> tuple[Float[Tensor, "tokens inputs"], Float[Tensor, "vocabulary inputs"]]:
    """Rows and a matrix whose product has the bias in it: as one more input, which is 1."""
    if bias is None:
        return hidden, weight
    return torch.cat([hidden, hidden.new_ones(len(hidden), 1)], dim=1), torch.cat([weight, bias.unsqueeze(1)], dim=1)
