"""Multi-head attention (section 3.2.2): one module for its three uses."""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.config.model import Compatibility
from transduce.kernels import (
    Attending,
    Heads,
    Mask,
    ProjectedMemory,
    RaggedAttention,
    RaggedLayout,
    Relative,
    Scoring,
    attend,
    attend_between,
    attend_ragged,
    attention_weights,
    can_project_memory,
    linear_maps,
    may_project_memory,
    project_memory,
)
from transduce.layers.dropout import Dropout
from transduce.layers.linear import PendingBias, join_maps, make_linear, split_bias, with_pending
from transduce.layers.state import KeyValues


@final
class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (section 3.2.1), or with another compatibility function where the
    configuration names one. The heads' projections are concatenated in one matrix: rows ``i d_k`` to ``(i + 1) d_k``
    of ``query.weight`` are the transpose of W_i^Q. ``relative`` adds relative positions; ``number`` is its
    dropout's in the model.
    """

    def __init__(self, config: TransformerConfig, number: int = 0, *, relative: bool = False) -> None:
        super().__init__()
        self.heads = Heads(config.heads, config.d_k, config.d_v)
        self.dropout, self.compatibility = Dropout(config.attention_dropout, number), config.compatibility
        inputs, bias, initializer = config.d_model, config.attention_bias, config.initializer
        queries, keys, values = self.heads.widths
        self.query = make_linear(inputs, queries, bias=bias, initializer=initializer)
        self.key = make_linear(inputs, keys, bias=bias, initializer=initializer)
        self.value = make_linear(inputs, values, bias=bias, initializer=initializer)
        self.output = make_linear(values, inputs, bias=bias, initializer=initializer)
        self.additive, self.bilinear = _additive_weights(config), _bilinear_weights(config)
        self.relative = RelativePositions(config) if relative else None

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        memory: Float[Tensor, "memory_tokens model"] | None,
        queries: RaggedLayout,
        keys: RaggedLayout,
        *,
        causal: bool = False,
        window: int | None = None,
        projected_memory: ProjectedMemory | None = None,
        defer_bias: bool = False,
    ) -> Float[Tensor, "tokens model"] | PendingBias:
        """Each position of ``x`` gathers from its row of the memory, or without one from its own row.

        ``projected_memory`` is what ``project_for_all`` has made of the memory for this attention. With ``defer_bias``,
        the output's bias may be left to whoever joins it to the residual stream.
        """
        attended: Tensor | ProjectedMemory | None = projected_memory
        if attended is None and memory is not None:
            attended = _project(memory, self.key, self.value)
        inner = self.inside(queries, keys, with_memory=attended is not None, causal=causal, window=window)
        if inner is not None:
            after, bias = split_bias(x, inner.after) if defer_bias else (inner.after, None)
            return with_pending(attend_between(x, inner.before, attended, inner.attention, after), bias)
        projected = _project(x, *self._asking(with_memory=attended is not None))
        attention = self.ragged(queries, keys, causal=causal, window=window)
        rows = attended.rows if isinstance(attended, ProjectedMemory) else attended
        result: Tensor = self.output(attend_ragged(projected, rows, attention))
        return result

    def inside(
        self,
        queries: RaggedLayout,
        keys: RaggedLayout,
        *,
        with_memory: bool = False,
        causal: bool = False,
        window: int | None = None,
    ) -> Attending | None:
        """What ``forward`` does, to be done among other sub-layers; None where a map is prepacked."""
        before, after = join_maps(*self._asking(with_memory=with_memory)), join_maps(self.output)
        if before is None or after is None:
            return None
        memory = join_maps(self.key, self.value) if with_memory else None
        return Attending(before, self.ragged(queries, keys, causal=causal, window=window), after, memory)

    def _asking(self, *, with_memory: bool) -> tuple[nn.Module, ...]:
        """The maps of the rows that ask."""
        return (self.query,) if with_memory else (self.query, self.key, self.value)

    def ragged(
        self, queries: RaggedLayout, keys: RaggedLayout, *, causal: bool = False, window: int | None = None
    ) -> RaggedAttention:
        """How each row's queries look at its keys."""
        dropped = self.dropout.at(queries.seeds)
        return RaggedAttention(queries, keys, self.heads, self.scoring(), causal, window, dropped)

    def key_values(self, x: Float[Tensor, "batch keys model"]) -> KeyValues:
        """Project what will be attended to, and kept for it."""
        return KeyValues(self._split(self.key(x)), self._split(self.value(x)))

    def look(
        self, x: Float[Tensor, "batch queries model"], attended: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch queries model"]:
        """Each position of ``x`` gathers from those of the keys and values kept that the mask lets it see."""
        query, dropped = self._split(self.query(x)), self.dropout.at(None)
        heads = attend(query, attended.key, attended.value, mask, self.scoring(), dropped)
        projected: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return projected

    def weights(
        self, x: Float[Tensor, "batch queries model"], attended: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch heads queries keys"]:
        """What ``look`` weighs the values by: for people to look at, off the fast path."""
        return attention_weights(self._split(self.query(x)), attended.key, mask, self.scoring())

    def scoring(self) -> Scoring:
        """How queries and keys are compared."""
        relative = None if self.relative is None else self.relative.vectors()
        scale = attention_scale(self.compatibility, self.heads.d_k)
        return Scoring(scale=scale, bilinear=self.bilinear, additive=self.additive, relative=relative)

    def _split(self, x: Float[Tensor, "batch length heads_width"]) -> Float[Tensor, "batch heads length width"]:
        return x.view(*x.shape[:-1], self.heads.number, -1).transpose(1, 2)


def project_for_all(
    attentions: Sequence[MultiHeadAttention], memory: Float[Tensor, "memory_tokens model"], keys: RaggedLayout
) -> Sequence[ProjectedMemory | None]:
    """Keys and values of one memory for each of these attentions, made at once.

    None for each of them, where one after the other is as fast.
    """
    maps = [join_maps(each.key, each.value) for each in attentions if may_project_memory(memory)]
    known = [each for each in maps if each is not None]
    if len(known) == len(attentions) and can_project_memory(memory, attentions[0].ragged(keys, keys), known):
        return project_memory(memory, known)
    return [None] * len(attentions)


def attention_scale(compatibility: Compatibility, d_k: int) -> float:
    """What products of queries and keys are multiplied by: 1 / sqrt(d_k) (section 3.2.1), or 1."""
    return 1 / math.sqrt(d_k) if compatibility == "scaled_dot_product" else 1.0


def _project(x: Float[Tensor, "tokens model"], *layers: nn.Module) -> Float[Tensor, "tokens widths"]:
    """What all layers make of ``x``, concatenated: by one product where they are no prepacked ones."""
    maps = join_maps(*layers)
    return (
        torch.cat([each(x) for each in layers], dim=-1) if maps is None else linear_maps(x, maps.weights, maps.biases)
    )


@final
class RelativePositions(nn.Module):
    """A vector for each distance of key and query from -k to k, for keys and for values, shared by a layer's heads."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        distances = 2 * config.max_relative_distance + 1
        self.keys = nn.Parameter(torch.empty(distances, config.d_k))
        self.values = nn.Parameter(torch.empty(distances, config.d_v))
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def vectors(self) -> Relative:
        """The vectors as attention reads them."""
        return Relative(self.keys, self.values)


def _additive_weights(config: TransformerConfig) -> nn.Parameter | None:
    """The w of w tanh(q + k), for every head (Bahdanau et al. 2015); None for other functions.

    The hidden layer's own maps of query and key are the heads' projections.
    """
    if config.compatibility != "additive":
        return None
    limit = math.sqrt(6 / (config.d_k + 1))
    return nn.Parameter(torch.empty(config.heads, config.d_k).uniform_(-limit, limit))


def _bilinear_weights(config: TransformerConfig) -> nn.Parameter | None:
    """The W of q W k, for every head (Luong et al. 2015); None for other functions."""
    if config.compatibility != "multiplicative":
        return None
    limit = math.sqrt(3 / config.d_k)
    return nn.Parameter(torch.empty(config.heads, config.d_k, config.d_k).uniform_(-limit, limit))
