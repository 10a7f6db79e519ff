"""Multi-head attention (section 3.2.2): one module for its three uses."""

from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import attention_weights, scaled_dot_product_attention
from transduce.layers.linear import glorot_linear
from transduce.layers.state import KeyValues


@final
class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The heads' projections stand side by side in one matrix: rows ``i d_k`` to ``(i + 1) d_k`` of ``query.weight`` are
    the transpose of W_i^Q.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        bias = config.attention_bias
        self.query = glorot_linear(config.d_model, config.heads * config.d_k, bias=bias)
        self.key = glorot_linear(config.d_model, config.heads * config.d_k, bias=bias)
        self.value = glorot_linear(config.d_model, config.heads * config.d_v, bias=bias)
        self.output = glorot_linear(config.heads * config.d_v, config.d_model, bias=bias)

    def key_values(self, x: Float[Tensor, "batch keys model"]) -> KeyValues:
        """Project what will be attended to."""
        return KeyValues(self._split(self.key(x)), self._split(self.value(x)))

    def forward(
        self,
        x: Float[Tensor, "batch queries model"],
        attended: KeyValues,
        allowed: Bool[Tensor, "#batch #queries keys"] | None,
    ) -> Float[Tensor, "batch queries model"]:
        """Each position of ``x`` gathers from the positions that ``allowed`` marks True."""
        heads = scaled_dot_product_attention(self._split(self.query(x)), attended.key, attended.value, allowed)
        projected: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return projected

    def weights(
        self,
        x: Float[Tensor, "batch queries model"],
        attended: KeyValues,
        allowed: Bool[Tensor, "#batch #queries keys"] | None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """What ``forward`` weighs the values by: for people to look at, off the fast path."""
        return attention_weights(self._split(self.query(x)), attended.key, allowed)

    def _split(self, x: Float[Tensor, "batch length heads_width"]) -> Float[Tensor, "batch heads length width"]:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)
