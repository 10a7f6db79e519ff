"""Multi-head attention (section 3.2.2): one module for its three uses."""

import math
from typing import assert_never, final

from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import Mask, Scoring, attend, attention_weights
from transduce.layers.compatibility import additive_weights, bilinear_weights
from transduce.layers.linear import make_linear
from transduce.layers.relative import RelativePositions
from transduce.layers.state import KeyValues


@final
class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (section 3.2.1), or with another compatibility function where the
    configuration names one. The heads' projections stand side by side in one matrix: rows ``i d_k`` to ``(i + 1) d_k``
    of ``query.weight`` are the transpose of W_i^Q. ``relative`` adds relative positions.
    """

    def __init__(self, config: ModelConfig, *, relative: bool = False) -> None:
        super().__init__()
        self.heads, self.dropout, self.compatibility = config.heads, config.attention_dropout, config.compatibility
        inputs, bias, initializer = config.d_model, config.attention_bias, config.initializer
        self.query = make_linear(inputs, config.heads * config.d_k, bias=bias, initializer=initializer)
        self.key = make_linear(inputs, config.heads * config.d_k, bias=bias, initializer=initializer)
        self.value = make_linear(inputs, config.heads * config.d_v, bias=bias, initializer=initializer)
        self.output = make_linear(config.heads * config.d_v, inputs, bias=bias, initializer=initializer)
        self.additive, self.bilinear = additive_weights(config), bilinear_weights(config)
        self.relative = RelativePositions(config) if relative else None

    def key_values(self, x: Float[Tensor, "batch keys model"]) -> KeyValues:
        """Project what will be attended to."""
        return KeyValues(self._split(self.key(x)), self._split(self.value(x)))

    def forward(
        self, x: Float[Tensor, "batch queries model"], attended: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch queries model"]:
        """Each position of ``x`` gathers from the positions that the mask lets it see."""
        dropped = self.dropout if self.training else 0.0
        heads = attend(self._queries(x), attended.key, attended.value, mask, self._scoring(), dropped)
        projected: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return projected

    def weights(
        self, x: Float[Tensor, "batch queries model"], attended: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch heads queries keys"]:
        """What ``forward`` weighs the values by: for people to look at, off the fast path."""
        return attention_weights(self._queries(x), attended.key, mask, self._scoring())

    def _queries(self, x: Float[Tensor, "batch queries model"]) -> Float[Tensor, "batch heads queries d_k"]:
        """The heads' queries, made such that their products with keys are the scores."""
        query = self._split(self.query(x))
        match self.compatibility:
            case "scaled_dot_product":
                # Scaling the queries costs less than scaling the scores: there are d_k of them, not one for each key.
                return query * (1 / math.sqrt(query.shape[-1]))
            case "multiplicative":
                assert self.bilinear is not None
                return query @ self.bilinear
            case "dot_product" | "additive":
                return query
            case _:
                assert_never(self.compatibility)

    def _scoring(self) -> Scoring:
        return Scoring(self.additive, None if self.relative is None else self.relative.vectors())

    def _split(self, x: Float[Tensor, "batch length heads_width"]) -> Float[Tensor, "batch heads length width"]:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)
