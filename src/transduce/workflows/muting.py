"""A loaded model once for each of its attention heads, without it."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from transduce.bundle import Bundle
from transduce.config import Precision
from transduce.config.attention import AttentionHead
from transduce.inference import Translator
from transduce.models import mute


def without_each(
    bundle: Bundle, heads: Iterable[AttentionHead], precision: Precision, place: torch.device | None
) -> Iterator[tuple[AttentionHead, Translator]]:
    """Each head, and a translator that has all heads but that one; only one of these is kept at a time.

    Raises:
        BadInputError: The model has no such head.
    """
    for head in heads:
        model = copy.deepcopy(bundle.model)
        mute(model, [head])
        yield head, Translator(replace(bundle, model=model), precision, place, consume=True)
