"""What attention makes of queries and keys of independent N(0, 1) components, by compatibility function and d_k."""

import math
from dataclasses import dataclass, fields
from typing import assert_never, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.config.model import Compatibility
from transduce.kernels import Mask
from transduce.layers import KeyValues, MultiHeadAttention


@final
@dataclass(frozen=True)
class Measures:
    """What attention makes of each query: a logit is a score before the softmax, a weight what comes out of it.

    ``variance``: of the logits, over the keys. ``entropy``: of the weights, in nats. ``jacobian``: the Frobenius norm
    of d weights / d logits. ``gradient``: the norm of dL / d query, for L = sum_j g_j weight_j with g_j from N(0, 1).
    """

    variance: Float[Tensor, " queries"]
    entropy: Float[Tensor, " queries"]
    jacobian: Float[Tensor, " queries"]
    gradient: Float[Tensor, " queries"]


def measure(function: Compatibility, d_k: int, queries: int, keys: int) -> Measures:
    """Each query with keys of its own; the function's own weights, where it has some, are as they start."""
    config = TransformerConfig(d_model=d_k, heads=1, compatibility=function, positions="none")
    attention = MultiHeadAttention(config).double()
    for projection in (attention.query, attention.key):
        nn.init.eye_(projection.weight)
    query = torch.randn(queries, 1, d_k, dtype=torch.float64, requires_grad=True)
    key = torch.randn(queries, 1, keys, d_k, dtype=torch.float64)
    weights = attention.weights(query, KeyValues(key, key), Mask()).flatten(1)
    pull = torch.randn_like(weights)
    (gradient,) = torch.autograd.grad((pull * weights).sum(), query)
    weights = weights.detach()
    return Measures(
        # The log of a weight is its logit less one number for all keys, which no variance sees.
        variance=weights.log().var(dim=1),
        entropy=torch.special.entr(weights).sum(dim=1),
        jacobian=jacobian_norm(weights),
        gradient=gradient.flatten(1).norm(dim=1),
    )


def jacobian_norm(weights: Float[Tensor, "queries keys"]) -> Float[Tensor, " queries"]:
    """The Frobenius norm of the softmax's Jacobian, whose entry i, j is weight_i ([i = j] - weight_j)."""
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(2) * weights.unsqueeze(1)
    norms: Tensor = jacobian.flatten(1).norm(dim=1)
    return norms


def measure_parts(function: Compatibility, d_k: int, queries: int, keys: int, parts: int) -> Measures:
    """So many times so many queries; the function's own weights, where it has some, are drawn anew each time."""
    measured = [measure(function, d_k, queries, keys) for _ in range(parts)]
    return Measures(*(torch.cat([getattr(part, field.name) for part in measured]) for field in fields(Measures)))


def expected_variance(function: Compatibility, d_k: int) -> float:
    """The variance of the logits over the keys, on average over queries and over the function's own first weights."""
    match function:
        case "scaled_dot_product":
            return 1.0
        case "dot_product" | "multiplicative":  # W starts with variance 1 / d_k, so q W is another such query
            return d_k
        case "additive":  # w starts with variance 2 / (d_k + 1)
            return 2 * d_k / (d_k + 1) * _tanh_variance()
        case _:
            assert_never(function)


def _tanh_variance() -> float:
    """The variance of tanh(q + k) over k, on average over q, both N(0, 1): by Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / math.sqrt(2 * math.pi)
    values = np.tanh(points[:, None] + points)
    return float((values**2 @ weights - (values @ weights) ** 2) @ weights)
