"""How queries are compared with keys, and what the comparison makes of the values: the plain formulas of attention."""

from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.kernels.dropout import WHOLE, Dropped, dropout


@final
@dataclass(frozen=True)
class Relative:
    """Vectors for the distances -k to k between a key and a query, the same for all heads (Shaw et al. 2018).

    A key so many columns behind a query's own is compared as ``key + keys[distance + k]``, whatever the comparison, and
    gathered as ``value + values[distance + k]``; farther ones count as k away.
    """

    keys: Float[Tensor, "distances d_k"]
    values: Float[Tensor, "distances d_v"]

    def index(self, distance: Int[Tensor, "queries keys"]) -> Int[Tensor, "queries keys"]:
        """The row of a distance."""
        farthest = self.keys.shape[0] // 2
        return distance.clamp(-farthest, farthest) + farthest


@final
@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a query and a key are compared: by their product, times ``scale``.

    ``bilinear`` is the W of q W k (Luong et al. 2015); ``additive`` the w of w tanh(q + k), which takes the product's
    place (Bahdanau et al. 2015).
    """

    scale: float = 1.0
    bilinear: Float[Tensor, "heads d_k d_k"] | None = None
    additive: Float[Tensor, "heads d_k"] | None = None
    relative: Relative | None = None

    @property
    def plain(self) -> bool:
        """Whether the score is a scaled product alone."""
        return self.bilinear is None and self.additive is None and self.relative is None

    def turn(self, query: Float[Tensor, "batch heads queries d_k"]) -> Float[Tensor, "batch heads queries d_k"]:
        """The queries such that their products with keys are the scores.

        To scale the queries costs less than to scale the scores: there are d_k of them, not one for each key.
        """
        if self.bilinear is not None:
            query = query @ self.bilinear.to(query.dtype)
        return query if self.scale == 1 else query * self.scale


PRODUCT: Final = Scoring()


def compare(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    distance: Int[Tensor, "queries keys"] | None,
    scoring: Scoring,
) -> Float[Tensor, "batch heads queries keys"]:
    """The score of every query and key; ``distance`` is only looked at for relative positions."""
    query = scoring.turn(query)
    if scoring.additive is not None:
        hidden = query.unsqueeze(3) + key.unsqueeze(2)
        if scoring.relative is not None and distance is not None:
            hidden = hidden + scoring.relative.keys[scoring.relative.index(distance)].to(hidden.dtype)
        return (torch.tanh(hidden) @ scoring.additive[:, None, :, None].to(hidden.dtype)).squeeze(-1)
    scores = query @ key.transpose(-2, -1)
    if scoring.relative is None or distance is None:
        return scores
    # q (k + a) = q k + q a, and there are but 2k + 1 different a.
    by_distance = query @ scoring.relative.keys.to(query.dtype).T
    return scores + by_distance.gather(-1, scoring.relative.index(distance).expand_as(scores))


def weigh(
    scores: Float[Tensor, "batch heads queries keys"], allowed: Bool[Tensor, "#batch #queries keys"] | None
) -> Float[Tensor, "batch heads queries keys"]:
    """The softmax of the scores over the keys that ``allowed`` marks True (all of them where it is None)."""
    if allowed is not None:
        # The lowest number in place of -inf has the same weight, 0; and a query without any key, whose result nobody
        # reads, gets a number and no NaN.
        scores = scores.masked_fill(~allowed.unsqueeze(1), torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1)


def gather(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch heads keys d_v"],
    distance: Int[Tensor, "queries keys"] | None,
    scoring: Scoring,
) -> Float[Tensor, "batch heads queries d_v"]:
    """The values' sums by their weights."""
    weights = weights.to(value.dtype)
    result = weights @ value
    if scoring.relative is None or distance is None:
        return result
    values = scoring.relative.values.to(value.dtype)
    by_distance = weights.new_zeros(*weights.shape[:-1], values.shape[0])
    by_distance = by_distance.scatter_add(-1, scoring.relative.index(distance).expand_as(weights), weights)
    return result + by_distance @ values


def attend_plainly(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    allowed: Bool[Tensor, "#batch #queries keys"] | None,
    distance: Int[Tensor, "queries keys"] | None,
    scoring: Scoring,
    dropped: Dropped = WHOLE,
) -> Float[Tensor, "batch heads queries d_v"]:
    """dropout(softmax(score(Q, K))) V, by holding every weight; ``dropped`` has rows of (batch, heads, queries)."""
    weights = weigh(compare(query, key, distance, scoring), allowed)
    return gather(dropout(weights, dropped), value, distance, scoring)
