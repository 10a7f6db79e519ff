"""Training by the score: a finished model learns from the sentence GLEU of its own outputs, in place of references.

Both objectives become weights of outputs in the one step that there is (``train_step``), whose loss is the sum of
w_k (-log p(y_k | x)) over the outputs y_k of all pairs: weights that say which way, and how far, each output's
log-probability is to go. With r_k the reward of an output (sentence GLEU, 0 to 1), they are, for each pair:

Minimum risk (Shen et al. 2016, section 3.2) is the expected risk R = sum_k Q_k (1 - r_k) over the distinct outputs
that were drawn, with Q_k = p_k^alpha / sum_j p_j^alpha. As grad Q_k = alpha Q_k (grad log p_k - sum_j Q_j grad log
p_j),

    grad R = alpha sum_k Q_k (1 - r_k - R) grad log p_k,    so    w_k = alpha Q_k (r_k - (1 - R)).

That is the whole gradient, not an estimate of it, with Q_k as a number: computed beforehand, in the same network.

REINFORCE (Wu et al. 2016, section 5) is the expected reward over all outputs, of which the drawn ones are an
estimate: unbiased but for two things. What search rules out (pad, begin and unknown symbols, an end that the limit of
length forces) has a probability that counts here, and is not drawn. And outputs are drawn without dropout, while the
gradient is that of log p with dropout; a model without dropout has no such difference. The mean reward m of the K
outputs is subtracted. It has each one's own reward in it, and divided by K the estimate would be short by 1/K; divided
by K - 1, each is compared with the mean of the others, which leaves the expectation as it is:

    w_k = (r_k - m) / (K - 1) for each output drawn,    and the likelihood's weight more for the reference.

The rewards' weights of a pair sum to 0. A model's auxiliary loss, such as that of a mixture of experts, counts by their
magnitudes, and so is minimized whatever an output is worth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add
from typing import NamedTuple, assert_never, final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transduce.config import SpecialIds
from transduce.data import Batch, pad
from transduce.models import LossSums
from transduce.search import score_targets
from transduce.training.outputs import Floats, Ids, Outputs, draw_outputs
from transduce.training.session import Training
from transduce.training.step import Rewards, compute_loss, to_tokens
from transduce.training.work import step_work


@final
@dataclass(frozen=True)
class Weighed:
    """What a step learns from in the place of its batches: outputs with their weights.

    ``losses`` are those of the references, which are measured beside, and ``rewards`` those of the outputs.
    """

    batches: list[Batch]
    losses: LossSums
    rewards: Rewards


class _Weighted(NamedTuple):
    """An output as a pair of a step: the number of its source in the batch, its ids, its weight."""

    pair: int
    ids: Ids
    weight: float = 1.0


def minimum_risk_weights(log_probability: Floats, rewards: Floats, sharpness: float) -> tuple[Floats, float]:
    """The weights of a pair's outputs, and their expected risk: ``sharpness`` is alpha."""
    scaled = sharpness * log_probability
    share = np.exp(scaled - scaled.max())
    share /= share.sum()
    expected = float(share @ rewards)
    return sharpness * share * (rewards - expected), 1 - expected


def reinforce_weights(counts: Floats, rewards: Floats) -> Floats:
    """The weights of a pair's distinct outputs, which were drawn so many times each."""
    drawn = float(counts.sum())
    mean = float(counts @ rewards) / drawn
    return counts * (rewards - mean) / (drawn - 1)


def weigh_outputs(training: Training, batches: Sequence[Batch], seed: Int[Tensor, ""]) -> Weighed:
    """Draw outputs for the pairs of a step's batches, and weigh them; ``seed`` is the step's.

    All outputs of a pair go through the network that dropout leaves of the model for that pair in this step.

    Raises:
        TransduceError: Memory is too small for the outputs of one pair.
    """
    model, config, special = training.model, training.config, training.corpora.special
    drawn = draw_outputs(model, batches, special, config, training.dtype, seed)
    model.train()
    with torch.no_grad():
        losses = [compute_loss(model, batch, training.dtype, seed) for batch in batches]
    weighed: list[Batch] = []
    risk = 0.0
    for batch, outputs in zip(batches, drawn, strict=True):
        match config.objective:
            case "minimum_risk":
                some, expected = _weigh_risk(training, batch, outputs, seed)
                risk += expected
            case "reinforce":
                some = _weigh_rewards(batch, outputs, config.likelihood_weight)
            case "likelihood":
                raise AssertionError("the references are learned from as they are")
            case _:
                assert_never(config.objective)
        weighed += [part for _, part in _cut(batch, [each for each in some if each.weight], special)]
    if not weighed:  # other processes wait for the gradient of this one, which has nothing to learn
        weighed = [part for _, part in _cut(batches[0], [_Weighted(0, (), 0.0)], special)]
    rewards = Rewards(
        pairs=sum(map(len, drawn)),
        reward=sum(each.mean_reward for outputs in drawn for each in outputs),
        risk=risk if config.objective == "minimum_risk" else None,
        work=step_work(weighed),
    )
    return Weighed(weighed, reduce(add, losses), rewards)


def _weigh_risk(
    training: Training, batch: Batch, outputs: Sequence[Outputs], seed: Int[Tensor, ""]
) -> tuple[list[_Weighted], float]:
    """The weighted outputs of a batch's pairs, and the sum of the pairs' expected risks."""
    config, risk = training.config, 0.0
    kept = outputs if config.risk_with_reference else [each.without_reference() for each in outputs]
    weighted = [_Weighted(each.pair, ids) for each in kept for ids in each.ids]
    scores = iter(_score(training, batch, weighted, seed))
    weights: list[float] = []
    for each in kept:
        own = np.array([*islice(scores, len(each.ids))])
        found, expected = minimum_risk_weights(own, each.rewards, config.risk_sharpness)
        weights += (_scale(batch, each.pair) * found).tolist()
        risk += expected
    return [each._replace(weight=weight) for each, weight in zip(weighted, weights, strict=True)], risk


def _weigh_rewards(batch: Batch, outputs: Sequence[Outputs], likelihood_weight: float) -> list[_Weighted]:
    """The weighted outputs of a batch's pairs, and their references."""
    weighted = []
    for each in outputs:
        weights = reinforce_weights(each.counts, each.rewards)
        weights[0] += likelihood_weight  # the reference's
        scaled = (_scale(batch, each.pair) * weights).tolist()
        weighted += [_Weighted(each.pair, ids, weight) for ids, weight in zip(each.ids, scaled, strict=True)]
    return weighted


def _scale(batch: Batch, pair: int) -> float:
    """How much the pair counts beside others."""
    return 1.0 if batch.weights is None else float(batch.weights[pair])


def _score(training: Training, batch: Batch, outputs: Sequence[_Weighted], seed: Int[Tensor, ""]) -> Floats:
    """The log-probability of each output in the network of its pair, with its dropout."""
    found, device, dtype = np.zeros(len(outputs)), training.device, training.dtype
    for places, part in _cut(batch, outputs, training.corpora.special):
        source, target, labels = to_tokens(part, device, seed)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            scores = score_targets(training.model, source, target, labels)
        found[places] = scores.double().cpu().numpy()
    return found


def _cut(batch: Batch, outputs: Sequence[_Weighted], special: SpecialIds) -> Iterator[tuple[list[int], Batch]]:
    """Outputs as pairs of the batch's sources and rows, in batches no larger than that, each with its outputs' places.

    Those of like length are together.
    """
    assert batch.rows is not None
    room = len(batch.source) * max(batch.source.shape[1], batch.target.shape[1])
    lengths = [max(int(batch.source_lengths[each.pair]), len(each.ids) + 1) for each in outputs]
    order = sorted(range(len(outputs)), key=lambda index: -lengths[index])
    while order:
        size = max(1, room // lengths[order[0]])
        places, order = order[:size], order[size:]
        some = [outputs[place] for place in places]
        pairs = np.array([each.pair for each in some])
        target, target_lengths = pad([[special.begin, *each.ids] for each in some], special.pad)
        labels, _ = pad([[*each.ids, special.end] for each in some], special.pad)
        source_lengths = batch.source_lengths[pairs]
        source = batch.source[pairs, : source_lengths.max()]
        weights = np.array([each.weight for each in some], np.float32)
        yield places, Batch(source, source_lengths, target, labels, target_lengths, batch.rows[pairs], weights)
