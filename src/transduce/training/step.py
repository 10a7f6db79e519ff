"""One training step, and the loss of a batch that it does not learn from."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from transduce.config import TrainConfig
from transduce.data import Batch
from transduce.kernels import derive, make_seed, send
from transduce.models import LossSums, Tokens
from transduce.training.fillers import fill_up
from transduce.training.parallel import postpone, whole


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Adam with the constants of section 5.3; the rate is set at every step."""
    betas = (config.adam_beta1, config.adam_beta2)
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=config.adam_epsilon, fused=True)


@final
@dataclass(frozen=True)
class Taken:
    """A step that was taken: the sums of its losses before it, and the norm of the gradient over all weights.

    Where the norm is infinite or no number, no weight was moved.
    """

    losses: LossSums
    gradient_norm: Float[Tensor, ""]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Adam,
    batches: Sequence[Batch],
    rate: float,
    dtype: torch.dtype,
    seed: Int[Tensor, ""] | None = None,
    *,
    tokens: float | None = None,
) -> Taken:
    """Move the model's weights once, against the mean gradient over all batches' target tokens, where that is finite.

    The gradient of the sum of all objectives is divided by the number of target tokens that count (weight not 0), not
    by the sum of the batches' weights: weights that are negative or add up to nothing (minimum-risk training) are as
    good as others, and twice the weights are twice the gradient. A caller who wants the weighted mean (importance
    sampling) gives the sum of the weights as ``tokens``.

    Batches are gone through one at a time, so that several need no more memory than one. With a ``seed``, what dropout
    leaves out of a pair follows from that and the pair's row, whatever micro-batches they are in. ``tokens`` is the
    divisor where other processes have batches of this step too; the sums are of these batches only.
    """
    model.train()
    tokens = sum(batch.target_tokens for batch in batches) if tokens is None else tokens
    total: LossSums | None = None
    for number, batch in enumerate(batches, start=1):
        with postpone(model, last=number == len(batches)):
            sums = compute_loss(model, fill_up(batch), dtype, seed)
            (sums.objective / tokens).backward()  # type: ignore[no-untyped-call]
        total = sums.detach() if total is None else total + sums.detach()
    assert total is not None
    norm = _gradient_norm(optimizer)
    _move(optimizer, rate, norm.isfinite())
    optimizer.zero_grad(set_to_none=True)
    return Taken(total, norm)


def _gradient_norm(optimizer: torch.optim.Adam) -> Float[Tensor, ""]:
    weights = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return whole(nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None]))


def _move(optimizer: torch.optim.Adam, rate: float, sound: Bool[Tensor, ""]) -> None:
    """Adam's step, unless the gradient is not ``sound``."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    weight = optimizer.param_groups[0]["params"][0]
    if sound.device.type != "cpu" and not isinstance(weight, DTensor):
        # Looked at there: to look here would be to wait for the device. It is how gradient scalers tell optimizers.
        optimizer.found_inf = (~sound).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif sound:
        optimizer.step()


def step_seed(seed: int, step: int) -> Int[Tensor, ""]:
    """What a step's dropout follows from: the training's seed and the step's number."""
    return derive(make_seed(seed), step)


def compute_loss(model: nn.Module, batch: Batch, dtype: torch.dtype, seed: Int[Tensor, ""] | None = None) -> LossSums:
    """The summed losses of a batch, matrix products in ``dtype``; ``seed`` is for dropout, as in ``train_step``."""
    device = next(model.parameters()).device
    seeds = None if seed is None or batch.rows is None else derive(seed, torch.from_numpy(batch.rows))
    source = Tokens(_tensor(batch.source, device), torch.from_numpy(batch.source_lengths), seeds)
    target = Tokens(_tensor(batch.target, device), torch.from_numpy(batch.target_lengths), seeds)
    weights = None if batch.weights is None else send(torch.from_numpy(batch.weights), device)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        sums: LossSums = model(source, target, _tensor(batch.labels, device), weights)
    return sums


def _tensor(array: np.ndarray, device: torch.device) -> Int[Tensor, "..."]:
    return send(torch.from_numpy(array), device)
