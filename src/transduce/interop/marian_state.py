"""A Transformer of ours as one that Marian has: the same function, in what Marian's layers can say."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from transduce.interop.dimension_order import sines_first
from transduce.models import Transformer

_BEGIN: Final = 1
_MAPS: Final = ("query", "key", "value", "output")
_EMBEDDING, _SOURCE, _SCORES = "embedding.weight", "source_embedding.weight", "projection.weight"


@final
@dataclass(frozen=True)
class MarianState:
    """Weights under our names; whether both sides have one embedding, and whether the target's scores the output."""

    weights: dict[str, Tensor]
    shared: bool
    tied: bool


def marian_state(model: Transformer) -> MarianState:
    """The weights with which Marian computes the same.

    Its decoder begins with a vector of zeros in the place of an embedded begin symbol, b. Where b is not zero, every
    embedding of the target has b less, so that all of the decoder's inputs x come as x - b, and the first layer gives b
    back: W (x - b) + (W b + c) = W x + c in its queries, keys and values, and in the residual sum by the bias of the
    self-attention's output. That is so of post-norm layers alone: others would see x - b through a norm. The matrix
    that scores the output is one of its own then.
    """
    config = model.config
    weights = {name: each.detach() for name, each in sines_first(model.state_dict(), config).items()}
    weights |= dict(_missing_biases(weights))
    ours = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    theirs = math.sqrt(config.d_model) if config.positions == "sinusoidal" else 1.0
    begin = weights[_EMBEDDING][_BEGIN].clone()
    shared, tied = model.source_embedding is None, model.projection is None
    if ours == theirs and not bool(begin.any()):
        return MarianState(weights, shared, tied)
    embedding = weights[_EMBEDDING]
    weights[_SOURCE] = weights.get(_SOURCE, embedding) * (ours / theirs)
    weights[_SCORES] = weights.get(_SCORES, embedding)
    weights[_EMBEDDING] = (embedding - begin) * (ours / theirs)
    _give_back(weights, begin * ours)
    return MarianState(weights, shared=False, tied=False)


def begins_with_zeros(model: Transformer) -> bool:
    """Whether the begin symbol's embedding is zero, so that nothing has to be given back."""
    return not bool(model.embedding.weight[_BEGIN].any())


def _missing_biases(weights: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Zeros for the biases that Marian's maps have and ours have not."""
    for name, tensor in weights.items():
        module, _, kind = name.rpartition(".")
        bias = f"{module}.bias"
        if kind == "weight" and ("attention." in name or "feed_forward." in name) and bias not in weights:
            yield bias, tensor.new_zeros(len(tensor))


def _give_back(weights: dict[str, Tensor], missing: Tensor) -> None:
    """The decoder's first layer adds to its inputs what they lack."""
    place = "decoder.0.self_attention"
    for each in _MAPS[:3]:
        name = f"{place}.{each}"
        weights[f"{name}.bias"] = weights[f"{name}.bias"] + torch.mv(weights[f"{name}.weight"], missing)
    weights[f"{place}.output.bias"] = weights[f"{place}.output.bias"] + missing
