"""How far the logits of two computations of one model are apart."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import SpecialIds
from transduce.interop.reference import Pair, Reference
from transduce.interop.rounding import Numbers, count_terms, tolerance
from transduce.models import Tokens, TrainableModel, Transformer

# What a bias forbids is as good as minus infinity, and no matter of rounding.
_FORBIDDEN: Final = -1e4


@final
@dataclass(frozen=True)
class Compared:
    """How many logits were compared, how far the furthest are apart, and how far rounding alone may bring them."""

    format: torch.dtype
    logits: int
    largest_difference: float
    tolerance: float

    @property
    def same(self) -> bool:
        """Whether rounding accounts for all differences."""
        return self.largest_difference <= self.tolerance


def compare_logits(model: TrainableModel, special: SpecialIds, reference: Reference, pairs: Sequence[Pair]) -> Compared:
    """Compare those of every symbol at every position of the pairs, in the reference's number format."""
    models: dict[torch.dtype, TrainableModel] = {torch.float32: model}
    numbers, largest, kind = Numbers(), 0.0, torch.float32
    for pair in pairs:
        theirs = reference.logits(*pair)
        kind = theirs.dtype
        if kind not in models:
            models[kind] = copy.deepcopy(model).to(kind)
        ours = known_logits(models[kind], *as_tokens(pair, special))
        if ours.shape != theirs.shape:
            return Compared(kind, numbers.count, math.inf, 0.0)
        compared = ~theirs.isnan().all(dim=0) & ~((ours < _FORBIDDEN) & (theirs < _FORBIDDEN))
        difference = (ours - theirs)[compared].abs()
        numbers += Numbers.of(ours[compared])
        # NaN is a difference, and so is nothing to compare.
        largest = max(largest, float(difference.nan_to_num(math.inf).max()) if len(difference) else math.inf)
    # What reads one symbol after the other adds up as often.
    steps = 1 if isinstance(model, Transformer) else max(len(ids) for pair in pairs for ids in pair) + 1
    return Compared(kind, numbers.count, largest, tolerance(numbers, count_terms([model]) * steps, kind))


@torch.inference_mode()
def known_logits(model: TrainableModel, source: Tokens, target: Tokens) -> Float[Tensor, "positions vocabulary"]:
    """Ours of each symbol of a known target, and of the end behind it."""
    logits: Tensor = model.project(model.decode(model.encode(source), target).hidden)
    return logits


def as_tokens(pair: Pair, special: SpecialIds) -> tuple[Tokens, Tokens]:
    """A pair as a model reads it."""
    source, target = [*pair[0], special.end], [special.begin, *pair[1]]
    read, written = (Tokens(torch.tensor([ids]), torch.tensor([len(ids)])) for ids in (source, target))
    return read, written
