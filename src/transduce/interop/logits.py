"""How far the logits of two computations of one model are apart, or the log-probabilities that they make."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import SpecialIds
from transduce.interop.reference import Pair, Reference, Scorer, library_errors
from transduce.interop.rounding import Numbers, count_terms, tolerance
from transduce.models import Tokens, TrainableModel, Transformer

# What a bias forbids is as good as minus infinity, and no matter of rounding.
_FORBIDDEN: Final = -1e4
# How much further apart two computations are, at most, than one of them is from float64, where errors grow on the way.
_AMPLIFIED: Final = 5

Quantity = Literal["logits", "log-probabilities"]


@final
@dataclass(frozen=True)
class Compared:
    """How many numbers were compared, how far the furthest are apart, and how far rounding alone may bring them."""

    quantity: Quantity
    format: torch.dtype
    count: int
    largest_difference: float
    tolerance: float

    @property
    def same(self) -> bool:
        """Whether rounding accounts for all differences."""
        return self.largest_difference <= self.tolerance


def compare(
    model: TrainableModel, special: SpecialIds, reference: Reference | Scorer, pairs: Sequence[Pair]
) -> Compared:
    """Compare what the reference shows: logits, or log-probabilities."""
    if isinstance(reference, Scorer):
        return _compare_log_probabilities(model, special, reference, pairs)
    return compare_logits(model, special, reference, pairs)


def compare_logits(model: TrainableModel, special: SpecialIds, reference: Reference, pairs: Sequence[Pair]) -> Compared:
    """Compare those of every symbol at every position of the pairs, in the reference's number format."""
    models: dict[torch.dtype, TrainableModel] = {torch.float32: model}
    numbers, kind = Numbers(), torch.float32
    differences: list[tuple[Pair, float]] = []
    for pair in pairs:
        with library_errors(reference.name, *reference.weights):
            theirs = reference.logits(*pair)
        kind = theirs.dtype
        if kind not in models:
            models[kind] = copy.deepcopy(model).to(kind)
        ours = known_logits(models[kind], *as_tokens(pair, special))
        if ours.shape != theirs.shape:
            return Compared("logits", kind, numbers.count, math.inf, 0.0)
        compared = ~theirs.isnan().all(dim=0) & ~((ours < _FORBIDDEN) & (theirs < _FORBIDDEN))
        numbers += Numbers.of(ours[compared])
        differences.append((pair, _furthest(ours[compared], theirs[compared])))
    allowed = tolerance(numbers, _count_terms(model, pairs), kind)
    worst = _worst(models[kind], special, differences, allowed)
    return Compared("logits", kind, numbers.count, *worst)


def _compare_log_probabilities(
    model: TrainableModel, special: SpecialIds, reference: Scorer, pairs: Sequence[Pair]
) -> Compared:
    """Compare those of the targets' symbols, each of which has the rounding of its logit and of the sum over all."""
    numbers, count, has = Numbers(), 0, torch.tensor(reference.has)
    differences: list[tuple[Pair, float]] = []
    with library_errors(reference.name, *reference.weights):
        all_theirs = reference.log_probabilities(pairs)
    for pair, theirs in zip(pairs, all_theirs, strict=True):
        logits = known_logits(model, *as_tokens(pair, special))
        numbers += Numbers.of(logits[logits > _FORBIDDEN])
        symbols = torch.tensor([*pair[1], special.end])
        ours = logits.log_softmax(dim=-1).gather(1, symbols.unsqueeze(1)).squeeze(1)
        if ours.shape != theirs.shape:
            return Compared("log-probabilities", torch.float32, count, math.inf, 0.0)
        compared = has[symbols]
        count += int(compared.sum())
        differences.append((pair, _furthest(ours[compared], theirs[compared])))
    allowed = 2 * tolerance(numbers, _count_terms(model, pairs), torch.float32) + reference.resolution
    return Compared("log-probabilities", torch.float32, count, *_worst(model, special, differences, allowed))


def _worst(
    model: TrainableModel, special: SpecialIds, differences: Sequence[tuple[Pair, float]], allowed: float
) -> tuple[float, float]:
    """Of the pair that is furthest beyond what is allowed, or nearest to it: the difference, and what is allowed there.

    What is allowed of most pairs is too little of a few, whose numbers are ill-conditioned: of these, our own distance
    from float64 tells how far rounding goes.
    """
    found, exact = [(0.0, allowed)], None
    for pair, difference in differences:
        bound = allowed
        if allowed < difference < math.inf:
            exact = exact or copy.deepcopy(model).double()
            tokens = as_tokens(pair, special)
            ours, right = (known_logits(each, *tokens).double() for each in (model, exact))
            seen = right > _FORBIDDEN
            bound = max(allowed, _AMPLIFIED * float((ours - right)[seen].abs().max()))
        found.append((difference, bound))
    return max(found, key=_share)


def _share(difference_and_bound: tuple[float, float]) -> float:
    difference, bound = difference_and_bound
    return difference / bound if bound else math.inf if difference else 0.0


def _furthest(ours: Float[Tensor, "*any"], theirs: Float[Tensor, "*any"]) -> float:
    """The largest difference. NaN is one, and so is nothing to compare."""
    difference = (ours - theirs).abs()
    return float(difference.nan_to_num(math.inf).max()) if difference.numel() else math.inf


def _count_terms(model: TrainableModel, pairs: Sequence[Pair]) -> int:
    # What reads one symbol after the other adds up as often.
    steps = 1 if isinstance(model, Transformer) else max(len(ids) for pair in pairs for ids in pair) + 1
    return count_terms([model]) * steps


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
