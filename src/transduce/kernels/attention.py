"""Scaled dot-product attention (section 3.2.1)."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_weights(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    allowed: Bool[Tensor, "#batch #queries keys"] | None,
) -> Float[Tensor, "batch heads queries keys"]:
    """softmax(Q K^T / sqrt(d_k)) over the keys that ``allowed`` marks True (all of them where it is None)."""
    # Scaling the queries costs less than scaling the scores: there are d_k of them, not one for each key.
    scores = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if allowed is not None:
        scores = scores.masked_fill(~allowed.unsqueeze(1), -math.inf)
    return torch.softmax(scores, dim=-1)


def scaled_dot_product_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    allowed: Bool[Tensor, "#batch #queries keys"] | None,
) -> Float[Tensor, "batch heads queries d_v"]:
    """softmax(Q K^T / sqrt(d_k)) V."""
    return attention_weights(query, key, allowed) @ value
