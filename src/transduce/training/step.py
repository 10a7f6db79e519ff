"""A training step as section 5 has it: batches (5.1), optimizer and learning rate (5.3), loss, gradient, update."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import BadInputError, TrainConfig
from transduce.data import Batch, Position, Share, Store, deal, drop_symbols, read_batches
from transduce.kernels import derive, make_seed, send
from transduce.models import LossSums, Tokens
from transduce.training.fillers import fill_up
from transduce.training.graphs import passes_of, takes
from transduce.training.health import Place
from transduce.training.parallel import is_spread, postpone, whole
from transduce.training.progress import Progress, is_read
from transduce.training.session import Corpora
from transduce.training.windows import Pause, open_windows
from transduce.training.work import Work

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class StepBatches:
    """A step's batches, as far as they are this process's, and where all of the step's stand.

    ``stream`` is where the last one's window begins in a stream.
    """

    batches: list[Batch]
    places: tuple[Place, ...]
    stream: Position | None = None

    @property
    def position(self) -> dict[str, Any]:
        """Where the training stands behind it, as ``Progress`` has it."""
        last = self.places[-1]
        return {"epoch": last.epoch, "window": last.window, "batch": last.batch + 1, "stream": self.stream}

    @property
    def last(self) -> bool:
        """Whether there is nothing to learn from behind it."""
        return self.stream is not None and self.stream.ended


def read_step_batches(
    corpora: Corpora, config: TrainConfig, progress: Progress, share: Share, pause: Pause = bool
) -> Iterator[StepBatches]:
    """What each step learns from, from where ``progress`` stands, without what it has excluded.

    It ends where a stream does; batches that make no whole step are left.

    Raises:
        BadInputError: The stream ends before there is a step at all.
    """
    steps = _steps(_batches(corpora, config, progress, share, pause), config.accumulate, progress)
    if isinstance(corpora.train, Store) or not corpora.train.ends:
        yield from steps
        return
    for step, following in pairwise(chain(steps, [None])):
        assert step is not None and step.stream is not None
        yield step if following is not None else replace(step, stream=replace(step.stream, ended=True))


def _steps(batches: Iterator["_Planned"], accumulate: int, progress: Progress) -> Iterator[StepBatches]:
    none = True
    while len(group := list(islice(batches, accumulate))) == accumulate:
        own = [batch for _, batch, _ in group if batch is not None]
        yield StepBatches(own, tuple(place for place, _, _ in group), group[-1][2])
        none = False
    if none and not is_read(progress):
        before = f"step {progress.step + 1:,}" if progress.step else "the first step"
        raise BadInputError(
            f"data.train: the corpora end before {before}: train.accumulate = {accumulate:,} batches are needed, there "
            f"{'was 1' if len(group) == 1 else f'were {len(group):,}'}: lower train.accumulate or train.batch_tokens, "
            f'add text, or read it again and again (data.at_end = "repeat")'
        )
    if group:
        _log.info(
            f"the training corpora end with {len(group)} of the train.accumulate = {accumulate:,} batches of a step: "
            f"no step learns from {'it' if len(group) == 1 else 'them'}"
        )


# A batch's place, this process's part of it, None where it is other processes' alone, and its window's of a stream.
_Planned = tuple[Place, Batch | None, Position | None]


def _batches(
    corpora: Corpora, config: TrainConfig, progress: Progress, share: Share, pause: Pause
) -> Iterator[_Planned]:
    """Every batch of the plan."""
    done, turn = progress.batch, 0
    excluded = set(progress.health.excluded)
    for opened in open_windows(corpora, config, progress, pause):
        epoch, planned = opened.epoch, opened.window.batches
        if (epoch, opened.index) != (progress.epoch, progress.window):
            done = 0
        resegment = corpora.resegment(epoch) if corpora.resegment else None
        if not turn and not opened.index:  # a pass' last window may be tiny
            share.check(planned)
        places = [Place(epoch, opened.index, number) for number in range(done, len(planned))]
        places = [place for place in places if place not in excluded]
        own = deal((planned[place.batch] for place in places), share, opened.pairs.sizes, turn)
        parts = read_batches(opened.pairs, own, corpora.special, resegment)
        for place in places:
            batch = next(parts) if share.takes(turn % share.accumulate) else None
            turn += 1
            if config.symbol_dropout and batch is not None:
                batch = drop_symbols(batch, config.symbol_dropout, corpora.special.unknown, (config.seed, epoch))
            yield place, batch, opened.position


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Adam with the constants of section 5.3; the rate is set at every step."""
    betas = (config.adam_beta1, config.adam_beta2)
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=config.adam_epsilon, fused=True)


def learning_rate(step: int, d_model: int, warmup_steps: int, factor: float) -> float:
    """Factor d_model^(-1/2) min(step^(-1/2), step warmup_steps^(-3/2)); steps are optimizer steps, counted from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def constant_rate(step: int, rate: float, warmup_steps: int) -> float:
    """In place of section 5.3's: up to ``rate`` in a straight line over the warm-up, and there it stays."""
    return rate * min(1.0, step / warmup_steps)


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """What the rate of a step is multiplied with: 1, then down to 1 / ``cooldown_steps`` at the last step.

    No part of the paper: it lets a training of few steps settle, as a longer one does by its ever smaller rate.
    """
    if not cooldown_steps:
        return 1.0
    return min(1.0, (max_steps - step + 1) / cooldown_steps)


def scheduled_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """The learning rate of a step, by whichever of these the settings ask for."""
    if step == 0:
        return 0.0  # the model that a training begins with
    if config.learning_rate is not None:
        rate = constant_rate(step, config.learning_rate, config.warmup_steps)
    else:
        rate = learning_rate(step, d_model, config.warmup_steps, config.learning_rate_factor)
    return rate * cooldown(step, config.max_steps, config.cooldown_steps)


@final
@dataclass(frozen=True)
class Rewards:
    """What the outputs that were drawn for some pairs are worth: sums over the pairs.

    ``reward`` is of the means of their rewards; ``risk`` of their expected risks, where these are the objective.
    ``work`` is that of the outputs that were learned from.
    """

    pairs: int
    reward: float
    risk: float | None
    work: Work

    def __add__(self, other: "Rewards") -> "Rewards":
        risk = None if self.risk is None or other.risk is None else self.risk + other.risk
        return Rewards(self.pairs + other.pairs, self.reward + other.reward, risk, self.work + other.work)


@final
@dataclass(frozen=True)
class Taken:
    """A step that was taken: the sums of its losses before it, and the norm of the gradient over all weights.

    Where the norm is infinite or NaN, no weight was moved. By the score, the losses are still the references', and
    ``rewards`` those of the outputs.
    """

    losses: LossSums
    gradient_norm: Float[Tensor, ""]
    rewards: Rewards | None = None


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
    graphed = passes_of(model, dtype)
    for number, batch in enumerate(batches, start=1):
        if graphed is not None and takes(batch):
            sums = graphed.run(batch, seed, 1 / tokens)
        else:
            with postpone(model, last=number == len(batches)):
                sums = compute_loss(model, _filled_up(model, batch), dtype, seed)
                (sums.objective / tokens).backward()  # type: ignore[no-untyped-call]
            sums = sums.detach()  # no graph of autograd's may be left when one of CUDA's is recorded
        total = sums if total is None else total + sums
    assert total is not None
    norm = _gradient_norm(optimizer)
    _move(optimizer, rate, norm.isfinite())
    optimizer.zero_grad(set_to_none=graphed is None)  # graphs write where they wrote before
    return Taken(total, norm)


def _filled_up(model: nn.Module, batch: Batch) -> Batch:
    return fill_up(batch) if next(model.parameters()).device.type == "cpu" else batch


def _gradient_norm(optimizer: torch.optim.Adam) -> Float[Tensor, ""]:
    weights = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return whole(nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None]))


def _move(optimizer: torch.optim.Adam, rate: float, finite: Bool[Tensor, ""]) -> None:
    """Adam's step, unless the gradient is not ``finite``."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    weight = optimizer.param_groups[0]["params"][0]
    if finite.device.type != "cpu" and not is_spread(weight):
        # Looked at there: to look here would be to wait for the device. It is how gradient scalers tell optimizers.
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()


def step_seed(seed: int, step: int) -> Int[Tensor, ""]:
    """What a step's dropout follows from: the training's seed and the step's number."""
    return derive(make_seed(seed), step)


def compute_loss(model: nn.Module, batch: Batch, dtype: torch.dtype, seed: Int[Tensor, ""] | None = None) -> LossSums:
    """The summed losses of a batch, matrix products in ``dtype``; ``seed`` is for dropout, as in ``train_step``."""
    device = next(model.parameters()).device
    source, target, labels = to_tokens(batch, device, seed)
    weights = None if batch.weights is None else send(torch.from_numpy(batch.weights), device)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        sums: LossSums = model(source, target, labels, weights)
    return sums


def to_tokens(
    batch: Batch, device: torch.device, seed: Int[Tensor, ""] | None = None
) -> tuple[Tokens, Tokens, Int[Tensor, "batch length"]]:
    """A batch's sources, targets and labels as a model reads them, with each pair's seed of the step's ``seed``."""
    seeds = None if seed is None or batch.rows is None else derive(seed, torch.from_numpy(batch.rows))
    source = Tokens(_tensor(batch.source, device), torch.from_numpy(batch.source_lengths), seeds)
    target = Tokens(_tensor(batch.target, device), torch.from_numpy(batch.target_lengths), seeds)
    return source, target, _tensor(batch.labels, device)


def _tensor(array: np.ndarray, device: torch.device) -> Int[Tensor, "..."]:
    return send(torch.from_numpy(array), device)
