"""The training loop: batches in, a trained model and its checkpoints out."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from transduce.config import TrainConfig
from transduce.data import Batch, Store, plan_epoch, read_batches
from transduce.kernels import resolve_precision
from transduce.models import Transformer
from transduce.text import SpecialIds
from transduce.training.checkpoint import save_checkpoint
from transduce.training.progress import Progress
from transduce.training.report import Report
from transduce.training.schedule import learning_rate
from transduce.training.step import compute_loss, train_step


@dataclass(frozen=True)
class Corpora:
    """What a training reads."""

    train: Store
    dev: Store
    special: SpecialIds


@dataclass(frozen=True)
class Hooks:
    """What the loop leaves to others: it knows neither text nor where the best model goes."""

    dev_bleu: Callable[[Transformer], float]
    save_best: Callable[[Transformer], None]


@dataclass(frozen=True)
class Training:
    """Everything that a training works with."""

    model: Transformer
    optimizer: torch.optim.Adam
    corpora: Corpora
    config: TrainConfig
    checkpoints: Path
    report: Report
    hooks: Hooks

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """What matrix products are computed in."""
        return resolve_precision(self.config.precision, self.device)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` to ``max_steps`` and return how far it came."""
    model, config = training.model, training.config
    device, dtype = training.device, training.dtype
    sums = Sums.zero(device)
    clock = time.perf_counter()
    for batch, position in _batches(training.corpora, config, progress):
        step = progress.step + 1
        rate = learning_rate(step, model.config.d_model, config.warmup_steps, config.learning_rate_factor)
        # Each step's dropout depends on seed and step alone, so a resumed training draws what this one would have.
        torch.manual_seed(_mix(config.seed, step))
        losses = train_step(model, training.optimizer, batch, rate, dtype)
        sums = sums.add(losses.nll, int(batch.target_lengths.sum()))
        progress = progress.model_copy(update={"step": step, **position})
        training.report.advance(step)
        last = is_over(config, step, progress.seconds + time.perf_counter() - clock)
        validating, saving = _due(step, config.validate_every, last), _due(step, config.checkpoint_every, last)
        if not (validating or saving or _due(step, config.log_every, last)):
            continue
        loss = sums.mean()  # waits for the device, so that the clock counts all of its work
        seconds = time.perf_counter() - clock
        progress = _count(progress, sums, seconds)
        training.report.train(_metrics("train", progress, loss, rate), sums.tokens / seconds)
        if validating:
            progress = _validate(training, progress, rate)
        if saving:
            save_checkpoint(training.checkpoints, model, training.optimizer, progress, keep=config.keep_checkpoints)
        if last:
            break
        sums, clock = Sums.zero(device), time.perf_counter()
    return progress


@dataclass(frozen=True)
class Sums:
    """Losses summed on the device since the last measurement, so that a step need not wait for the figure."""

    nll: torch.Tensor
    tokens: int

    @classmethod
    def zero(cls, device: torch.device) -> "Sums":
        """Nothing summed yet."""
        return cls(torch.zeros((), dtype=torch.float64, device=device), 0)

    def add(self, nll: torch.Tensor, tokens: int) -> "Sums":
        """One batch more."""
        return Sums(self.nll + nll, self.tokens + tokens)

    def mean(self) -> float:
        """Nats per target token."""
        return float(self.nll) / max(1, self.tokens)


def _batches(corpora: Corpora, config: TrainConfig, progress: Progress) -> Iterator[tuple[Batch, dict[str, int]]]:
    """Batches without end from where ``progress`` stands, each with the position behind it."""
    epoch, done = progress.epoch, progress.batch
    # The model sees the end symbol too.
    lengths = corpora.train.source_lengths + 1, corpora.train.target_lengths + 1
    while True:
        plan = plan_epoch(*lengths, config.batch_tokens, config.seed, epoch)
        for batch in read_batches(corpora.train, plan[done:], corpora.special):
            done += 1
            yield batch, {"epoch": epoch, "batch": done}
        epoch, done = epoch + 1, 0


def _validate(training: Training, progress: Progress, rate: float) -> Progress:
    """Measure dev, and keep the model where it is the best so far."""
    loss = dev_loss(training)
    bleu = training.hooks.dev_bleu(training.model)
    score = bleu if training.config.best_metric == "bleu" else -loss
    # A loss that is no number is never the best, and never stands in the way of a better one.
    best = not math.isnan(score) and (progress.best_score is None or score > progress.best_score)
    if best:
        training.hooks.save_best(training.model)
        progress = progress.model_copy(update={"best_score": score, "best_step": progress.step})
    training.report.dev(_metrics("dev", progress, loss, rate) | {"bleu": bleu}, best=best)
    return progress


@torch.no_grad()
def dev_loss(training: Training) -> float:
    """Nats per target token of dev, without label smoothing."""
    training.model.eval()
    dev = training.corpora.dev
    lengths = dev.source_lengths + 1, dev.target_lengths + 1
    # Dev is measured whole: a pair longer than the training's budget gets a batch of its own.
    budget = max(training.config.batch_tokens, int(max(side.max() for side in lengths)))
    sums = Sums.zero(training.device)
    for batch in read_batches(dev, plan_epoch(*lengths, budget, 0, 0), training.corpora.special):
        sums = sums.add(compute_loss(training.model, batch, training.dtype).nll, int(batch.target_lengths.sum()))
    return sums.mean()


def _count(progress: Progress, sums: Sums, seconds: float) -> Progress:
    return progress.model_copy(
        update={
            "target_tokens": progress.target_tokens + sums.tokens,
            "seconds": progress.seconds + seconds,
        }
    )


def _metrics(split: str, progress: Progress, loss: float, rate: float) -> dict[str, float | int | str]:
    return {
        "step": progress.step,
        "split": split,
        "loss": loss,
        "learning_rate": rate,
        "target_tokens": progress.target_tokens,
        "seconds": round(progress.seconds, 3),
    }


def _due(step: int, every: int, last: bool) -> bool:
    return last or step % every == 0


def is_over(config: TrainConfig, step: int, seconds: float) -> bool:
    """Whether a training has had its steps or its time."""
    return step >= config.max_steps or (config.max_minutes is not None and seconds >= 60 * config.max_minutes)


def _mix(seed: int, step: int) -> int:
    """A seed of its own for every step of every training."""
    return (seed * 1_000_003 + step) % 2**63
