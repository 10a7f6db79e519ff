"""How activations are spread in a model that has learned nothing yet, beside what its weights lead to expect."""

import math
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import assert_never, final

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.activations import Activations, random_source, watch
from transduce.config import TransformerConfig
from transduce.layers import sinusoids
from transduce.models import Transformer


@final
@dataclass(frozen=True)
class Start:
    """An encoder's stream (what the first layer is given, then every layer's result) and its sub-layers' outputs.

    ``similarity`` is the mean cosine of two different positions of a sentence. Variances are of all components
    together; a name with ``expected`` is what the variances of the weights predict.
    """

    mean: Float[Tensor, " stream"]
    variance: Float[Tensor, " stream"]
    expected: Float[Tensor, " stream"]
    similarity: Float[Tensor, " stream"]
    attention: Float[Tensor, " layers"]
    attention_expected: Float[Tensor, " layers"]
    feed_forward: Float[Tensor, " layers"]
    feed_forward_expected: Float[Tensor, " layers"]


def start(config: TransformerConfig, seed: int, rows: int, length: int) -> Start:
    """The encoder of a fresh model, on random sentences."""
    torch.manual_seed(seed)
    encoding = watch(Transformer(config), random_source(rows, length, range(config.vocab_size)))
    attention = [expect_attention(x) for x in encoding.attention.given]
    feed_forward = [expect_feed_forward(x, config) for x in encoding.feed_forward.given]
    stream = expect_stream(config, length, [a + f for a, f in zip(attention, feed_forward, strict=True)])
    return Start(
        mean=torch.tensor([float(x.mean()) for x in encoding.stream]),
        variance=_variances(encoding.stream),
        expected=torch.tensor(stream),
        similarity=torch.tensor([similarity(x) for x in encoding.stream]),
        attention=_variances(encoding.attention.made),
        attention_expected=torch.tensor(attention),
        feed_forward=_variances(encoding.feed_forward.made),
        feed_forward_expected=torch.tensor(feed_forward),
    )


def starts(config: TransformerConfig, seeds: range, rows: int, length: int) -> Start:
    """The same for several seeds: every field with an axis of seeds in front."""
    several = [start(config, seed, rows, length) for seed in seeds]
    return Start(*(torch.stack([getattr(one, field.name) for one in several]) for field in fields(Start)))


def similarity(x: Activations) -> float:
    """The mean cosine of two different positions of a sentence."""
    length = x.shape[1]
    cosines = torch.nn.functional.normalize(x, dim=-1).sum(dim=1).square().sum(dim=-1) - length
    return float(cosines.mean() / (length * (length - 1)))


def expect_attention(x: Activations) -> float:
    """The variance of self-attention's output: m (c + (1 - c) e^v / n), for inputs x of mean square m at n positions.

    The maps of values and outputs keep the mean square, that of a weighted mean of n vectors with cosines c is
    m (c + (1 - c) sum_i a_i^2), and n weights from logits of variance v have a sum of squares of e^v / n, for n well
    above e^v. What all positions share adds the same to all logits of a query: v = m^2 (1 - c).
    """
    m, c, n = float(x.square().mean()), similarity(x), x.shape[1]
    return m * (c + (1 - c) * math.exp(m**2 * (1 - c)) / n)


def expect_feed_forward(x: Activations, config: TransformerConfig) -> float:
    """The variance of FFN(x) for inputs of mean square m: m / 2 times inputs times variance of either map's weights."""
    inner, outer = config.d_model, config.d_ff
    match config.initializer:
        case "glorot_uniform":
            kept = (2 * inner / (inner + outer)) * (2 * outer / (inner + outer))
        case "unit_scaling":
            kept = 1.0
        case _:
            assert_never(config.initializer)
    return float(x.square().mean()) * kept / 2  # a ReLU halves the mean square


def expect_stream(config: TransformerConfig, length: int, added: list[float]) -> list[float]:
    """Embeddings of variance 1 and sinusoids; then post-norm makes it 1, and pre-norm adds what sub-layers make."""
    positions = sinusoids(torch.arange(length), config.d_model, config.sinusoid_layout, config.sinusoid_range)
    first = 1 + float(positions.var())
    match config.norm:
        case "post":
            return [first, *(1.0 for _ in added)]
        case "pre":
            return list(accumulate(added, initial=first))
        case _:
            assert_never(config.norm)


def _variances(several: list[Activations]) -> Float[Tensor, " layers"]:
    return torch.tensor([float(x.var()) for x in several])
