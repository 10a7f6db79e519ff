"""How well a decoder's state and a position of the source match: the scores e of attention in recurrent models.

``s`` is the decoder's state, ``h`` the encoder's output at one position. What depends on ``h`` alone, a score's *keys*,
is computed once for a source.
"""

import math
from typing import assert_never, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config.recurrent import RecurrentConfig
from transduce.layers.linear import Linear, make_linear


@final
class DotScore(nn.Module):
    """e = s . h (Luong et al. 2015, "dot"): both have to be equally wide."""

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        if query_size != value_size:
            raise ValueError(
                f"attention_score = 'dot' compares the decoder's states, {query_size} wide, with the encoder's "
                f"outputs, {value_size} wide, as they are: choose 'general', which maps one to the other"
            )

    def keys(self, values: Float[Tensor, "sentences source hidden"]) -> Float[Tensor, "sentences source hidden"]:
        """The values themselves."""
        return values

    def forward(
        self,
        query: Float[Tensor, "sentences queries size"],
        keys: Float[Tensor, "sentences source size"],
        previous: Float[Tensor, "sentences #queries source"] | None,
    ) -> Float[Tensor, "sentences queries source"]:
        """The scores of all pairs."""
        return query @ keys.transpose(1, 2)


@final
class GeneralScore(nn.Module):
    """e = s W h (Luong et al. 2015, "general")."""

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        self.value = _make_map(value_size, query_size)

    def keys(self, values: Float[Tensor, "sentences source hidden"]) -> Float[Tensor, "sentences source size"]:
        """W h."""
        projected: Tensor = self.value(values)
        return projected

    def forward(
        self,
        query: Float[Tensor, "sentences queries size"],
        keys: Float[Tensor, "sentences source size"],
        previous: Float[Tensor, "sentences #queries source"] | None,
    ) -> Float[Tensor, "sentences queries source"]:
        """The scores of all pairs."""
        return query @ keys.transpose(1, 2)


@final
class LinearScore(nn.Module):
    """e = w [s; h], a single linear map: what one gets from "concat" without its hidden layer.

    w_s s is the same number at every position, so that the softmax cancels it: the weights are the same in every
    step. Smoothing, whose sigmoid is no exponential, does not cancel it.
    """

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        self.query, self.value = _make_map(query_size, 1), _make_map(value_size, 1)
        _start_as_one(self.query, self.value)

    def keys(self, values: Float[Tensor, "sentences source hidden"]) -> Float[Tensor, "sentences source 1"]:
        """w_h h."""
        projected: Tensor = self.value(values)
        return projected

    def forward(
        self,
        query: Float[Tensor, "sentences queries size"],
        keys: Float[Tensor, "sentences source 1"],
        previous: Float[Tensor, "sentences #queries source"] | None,
    ) -> Float[Tensor, "sentences queries source"]:
        """The scores of all pairs."""
        scores: Tensor = self.query(query) + keys.transpose(1, 2)
        return scores


@final
class HiddenLayerScore(nn.Module):
    """A network with one hidden layer of ``attention_size`` units, which three scores share.

    additive: e = v tanh(W s + V h + b) (Bahdanau et al. 2015). concat: e = v tanh(W [s; h]) (Luong et al. 2015): there
    is no b, and both halves of W start as one matrix. location: e = v tanh(W s + V h + U f + b), where f_j are
    ``attention_filters`` numbers, f_j = sum over t of F_t a_(j + t) with t from -r to r, of the weights a of the step
    before; the filters F are 2 r + 1 = ``attention_filter_width`` wide (Chorowski et al. 2015).
    """

    def __init__(self, config: RecurrentConfig, query_size: int, value_size: int) -> None:
        super().__init__()
        size, joined = config.attention_size, config.attention_score == "concat"
        self.query = _make_map(query_size, size)
        self.value = make_linear(value_size, size, bias=not joined, initializer="glorot_uniform")
        if joined:
            _start_as_one(self.query, self.value)
        limit = math.sqrt(6 / (size + 1))
        self.vector = nn.Parameter(torch.empty(size).uniform_(-limit, limit))
        self.location = Location(config) if config.attention_score == "location" else None

    def keys(self, values: Float[Tensor, "*symbols hidden"]) -> Float[Tensor, "*symbols units"]:
        """V h + b."""
        projected: Tensor = self.value(values)
        return projected

    def forward(
        self,
        query: Float[Tensor, "sentences queries size"],
        keys: Float[Tensor, "sentences source units"],
        previous: Float[Tensor, "sentences #queries source"] | None,
    ) -> Float[Tensor, "sentences queries source"]:
        """The scores of all pairs; ``previous`` are the weights of the step before, which only "location" reads."""
        hidden = self.query(query).unsqueeze(2) + keys.unsqueeze(1)
        if self.location is not None and previous is not None:
            hidden = hidden + self.location(previous)
        scores: Tensor = torch.tanh(hidden) @ self.vector
        return scores


@final
class Location(nn.Module):
    """U f: where the step before has looked, as every position sees it."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        filters, width = config.attention_filters, config.attention_filter_width
        limit = math.sqrt(3 / width)
        self.filters = nn.Parameter(torch.empty(filters, width).uniform_(-limit, limit))
        self.features = _make_map(filters, config.attention_size)

    def forward(
        self, previous: Float[Tensor, "sentences queries source"]
    ) -> Float[Tensor, "sentences queries source units"]:
        """Positions beyond the ends of the source have weight 0."""
        filters = self.filters.unsqueeze(1)
        rows = previous.flatten(0, 1).unsqueeze(1).to(filters.dtype)
        convolved = F.conv1d(rows, filters, padding=self.filters.shape[1] // 2)
        found: Tensor = self.features(convolved.transpose(1, 2))
        return found.view(*previous.shape, found.shape[-1])


Score = DotScore | GeneralScore | LinearScore | HiddenLayerScore


def make_score(config: RecurrentConfig, query_size: int, value_size: int) -> Score:
    """The score that ``attention_score`` names.

    Raises:
        ValueError: It is "dot", and the sizes differ.
    """
    match config.attention_score:
        case "dot":
            return DotScore(query_size, value_size)
        case "general":
            return GeneralScore(query_size, value_size)
        case "linear":
            return LinearScore(query_size, value_size)
        case "additive" | "concat" | "location":
            return HiddenLayerScore(config, query_size, value_size)
        case _:
            assert_never(config.attention_score)


def _make_map(inputs: int, outputs: int) -> Linear:
    return make_linear(inputs, outputs, bias=False, initializer="glorot_uniform")


def _start_as_one(*parts: Linear) -> None:
    """Begin with what one map of all their inputs would have: uniform up to sqrt(6 / (inputs + outputs))."""
    limit = math.sqrt(6 / (sum(part.in_features for part in parts) + parts[0].out_features))
    for part in parts:
        nn.init.uniform_(part.weight, -limit, limit)
