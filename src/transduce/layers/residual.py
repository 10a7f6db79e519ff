"""The residual connection, normalization and dropout around every sub-layer (sections 3.1 and 5.4)."""

from typing import assert_never, final

from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import dropout


@final
class Residual(nn.Module):
    """What stands around a sub-layer.

    Post-norm, as published: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).
    A sub-layer's place in the code is between the two verbs: ``add(x, sublayer(prepare(x)))``. Without ``residual``,
    the ``x +`` is left out.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.position, self.residual = config.norm, config.residual
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
        self.dropout = config.dropout

    def prepare(self, x: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions model"]:
        """What the sub-layer is given."""
        match self.position:
            case "post":
                return x
            case "pre":
                normalized: Tensor = self.norm(x)
                return normalized
            case _:
                assert_never(self.position)

    def add(
        self, x: Float[Tensor, "*positions model"], output: Float[Tensor, "*positions model"]
    ) -> Float[Tensor, "*positions model"]:
        """Join what the sub-layer made to what it was made from."""
        total = dropout(output, self.dropout, training=self.training)
        if self.residual:
            total = x + total
        match self.position:
            case "post":
                normalized: Tensor = self.norm(total)
                return normalized
            case "pre":
                return total
            case _:
                assert_never(self.position)
