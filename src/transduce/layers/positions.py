"""What tells positions apart (section 3.5)."""

import math
from typing import Final, assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.layers.dropout import Dropout
from transduce.layers.linear import make_linear
from transduce.layers.residual import Stream
from transduce.layers.sinusoids import sinusoids

# Of a table, at least: most sequences never make it grow.
_LENGTH: Final = 512


@final
class SinusoidalPositions(nn.Module):
    """A table of sinusoids that grows with the longest sequence seen; not a parameter, and never saved.

    It is empty at first: where a model has no storage, torch would load its compiler to compute one, for a second.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.d_model, self.layout, self.range = config.d_model, config.sinusoid_layout, config.sinusoid_range
        self.start = config.sinusoid_start
        self.register_buffer("table", torch.empty(0, config.d_model), persistent=False)
        self.table: Tensor

    def forward(self, positions: Int[Tensor, "*positions"], longest: int) -> Float[Tensor, "*positions model"]:
        """The encodings of positions below ``longest``."""
        table = self.table  # read once: threads share the model, and another one may put a shorter table in its place
        if longest > table.shape[0]:
            length = max(_LENGTH, 2 * longest)
            self.table = table = self._encode(torch.arange(length, device=table.device)).to(table.dtype)
        return table[positions]

    def _encode(self, positions: Int[Tensor, " positions"]) -> Float[Tensor, "positions model"]:
        return sinusoids(positions + self.start, self.d_model, self.layout, self.range)


@final
class LearnedPositions(nn.Module):
    """A trained vector for each of ``max_positions`` positions (Table 3, row E), which start as N(0, 1 / d_model)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        table = torch.empty(config.max_positions, config.d_model)
        self.weight = nn.Parameter(nn.init.normal_(table, std=1 / math.sqrt(config.d_model)))

    def forward(self, positions: Int[Tensor, "*positions"], longest: int) -> Float[Tensor, "*positions model"]:
        """The vectors of positions below ``longest``.

        Raises:
            ValueError: There are more positions than were learned.
        """
        if longest > len(self.weight):
            raise ValueError(
                f"a sequence of {longest:,} symbols: this model has learned max_positions = {len(self.weight):,}"
            )
        return self.weight[positions]


@final
class PositionalEncoding(nn.Module):
    """Joins positions to embeddings: by a sum; or concatenated, and mapped to d_model by a learned matrix."""

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        self.table = _table(config)
        beside = config.position_combination == "concatenate"
        width, initializer = config.d_model, config.initializer
        self.join = make_linear(2 * width, width, bias=False, initializer=initializer) if beside else None
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.embedding_norm else None
        self.dropout, self.at_every_layer = Dropout(config.embedding_dropout, number), config.positions_at_every_layer

    def forward(
        self,
        x: Float[Tensor, "*positions model"],
        positions: Int[Tensor, "*#positions"],
        longest: int,
        seeds: Int[Tensor, "*positions"] | None = None,
    ) -> Float[Tensor, "*positions model"]:
        """What the first layer is given: Dropout(x + PE[positions]), x being embeddings, all below ``longest``.

        Where the configuration asks for it, Dropout(LayerNorm(x + PE[positions])).
        """
        joined = self._join(x, positions, longest)
        result: Tensor = self.dropout(joined if self.norm is None else self.norm(joined), seeds)
        return result

    def again(self, x: Stream, positions: Int[Tensor, "*#positions"], longest: int) -> Stream:
        """What a later layer is given: x, or x + PE[positions] where positions come in at every layer."""
        return Stream(self._join(x.settle(), positions, longest)) if self.at_every_layer else x

    def vectors(self, longest: int) -> Float[Tensor, "longest model"] | None:
        """The vectors of the positions below ``longest`` in float32, where the model has such."""
        if self.table is None:
            return None
        encoded: Tensor = self.table(torch.arange(longest), longest)
        return encoded.detach().float().contiguous()

    def _join(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        if self.table is None:
            return x
        encoded: Tensor = self.table(positions, longest)
        if self.join is None:
            return x + encoded
        joined: Tensor = self.join(torch.cat([x, encoded.expand_as(x).to(x.dtype)], dim=-1))
        return joined.to(x.dtype)  # autocast rounds what a map makes, and the residual sums need x's own precision


def _table(config: TransformerConfig) -> SinusoidalPositions | LearnedPositions | None:
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config)
        case "learned":
            return LearnedPositions(config)
        case "relative" | "none":  # relative positions come in at every attention
            return None
        case _:
            assert_never(config.positions)
