"""Attention over parameters (the paper's supplementary section), in the feed-forward networks' place."""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import Mask, attend
from transduce.layers.dropout import Dropout
from transduce.layers.linear import make_linear


@final
class ParameterAttention(nn.Module):
    """Multi-head attention whose keys and values are ``n_p`` trained pairs for each of ``h_p`` heads.

    The pairs are scaled up by sqrt(d_model), "to be more similar to activations": they start as N(0, 1 / d_model).
    """

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        heads, pairs, d_pk, d_pv = (
            config.parameter_heads,
            config.parameter_keys,
            config.parameter_d_k,
            config.parameter_d_v,
        )
        self.heads, self.scale = heads, math.sqrt(config.d_model)
        self.dropout = Dropout(config.attention_dropout, number)
        bias, initializer = config.attention_bias, config.initializer
        self.query = make_linear(config.d_model, heads * d_pk, bias=bias, initializer=initializer)
        self.keys = nn.Parameter(torch.empty(heads, pairs, d_pk).normal_(std=1 / self.scale))
        self.values = nn.Parameter(torch.empty(heads, pairs, d_pv).normal_(std=1 / self.scale))
        self.output = make_linear(heads * d_pv, config.d_model, bias=bias, initializer=initializer)

    def forward(
        self, x: Float[Tensor, "*positions model"], seeds: Int[Tensor, "*positions"] | None = None
    ) -> Float[Tensor, "*positions model"]:
        """Transform each position on its own: all of them are queries of one attention."""
        query: Tensor = self.query(x.reshape(-1, x.shape[-1]))
        query = query.view(1, len(query), self.heads, -1).transpose(1, 2) * (1 / math.sqrt(self.keys.shape[-1]))
        keys, values = ((self.scale * pairs).to(query.dtype).unsqueeze(0) for pairs in (self.keys, self.values))
        dropped = self.dropout.at(None if seeds is None else seeds.reshape(1, -1))
        gathered = attend(query, keys, values, Mask(), dropped=dropped)
        result: Tensor = self.output(gathered.transpose(1, 2).flatten(2))
        return result.view(x.shape)
