"""Models without one of their attention heads: what a head is for shows where it is missing."""

from collections.abc import Iterable

import torch

from transduce.config import BadInputError
from transduce.config.attention import AttentionHead, AttentionKind
from transduce.layers import MultiHeadAttention
from transduce.models.contract import TrainableModel
from transduce.models.transformer import Transformer

# Kind, layer, and what torch says that a layer's part is.
_Placed = tuple[AttentionKind, int, object]


def heads_of(model: TrainableModel) -> list[AttentionHead]:
    """All heads of a model, kind by kind and layer by layer; none of a model without such attention."""
    return [
        AttentionHead(kind, layer, head)
        for (kind, layer), attention in _attentions(model).items()
        for head in range(attention.heads.number)
    ]


def mute(model: TrainableModel, heads: Iterable[AttentionHead]) -> None:
    """Have these heads add nothing to their layers' outputs, in place: their columns of W^O become 0.

    Raises:
        BadInputError: The model has no such head.
    """
    attentions = _attentions(model)
    for head in heads:
        attention = attentions.get((head.kind, head.layer))
        if attention is None or not 0 <= head.head < attention.heads.number:
            raise BadInputError(f"{head}: the model has no such attention head")
        width = attention.heads.d_v
        with torch.no_grad():
            attention.output.weight[:, head.head * width : (head.head + 1) * width] = 0


def _attentions(model: TrainableModel) -> dict[tuple[AttentionKind, int], MultiHeadAttention]:
    if not isinstance(model, Transformer):
        return {}
    reading: list[_Placed] = [("encoder", number, layer.self_attention) for number, layer in enumerate(model.encoder)]
    writing: list[_Placed] = [("decoder", number, layer.self_attention) for number, layer in enumerate(model.decoder)]
    between: list[_Placed] = [("cross", number, layer.cross_attention) for number, layer in enumerate(model.decoder)]
    every = (*reading, *writing, *between)
    return {(kind, layer): attention for kind, layer, attention in every if isinstance(attention, MultiHeadAttention)}
