"""The training loop: batches in, a trained model and its checkpoints out."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import torch

from transduce.config import TrainConfig
from transduce.data import Batch, drop_symbols, plan_epoch, read_batches
from transduce.training.checkpoint import save_checkpoint
from transduce.training.memory import keep_freed_memory
from transduce.training.progress import Progress
from transduce.training.schedule import cooldown, learning_rate
from transduce.training.session import Corpora, Sums, Training, describe
from transduce.training.step import step_seed, train_step
from transduce.training.validation import validate
from transduce.training.work import step_work

_log = logging.getLogger(__name__)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` until it is over and return how far it came."""
    config, device = training.config, training.device
    keep_freed_memory()
    sums = Sums.zero(device)
    clock = time.perf_counter()
    for batches, position in _steps(training.corpora, config, progress):
        step = progress.step + 1
        rate = learning_rate(step, training.model.config.d_model, config.warmup_steps, config.learning_rate_factor)
        rate *= cooldown(step, config.max_steps, config.cooldown_steps)
        # What a step draws depends on seed and step alone, so a resumed training draws what this one would have.
        torch.manual_seed(_mix(config.seed, step))
        seed = step_seed(config.seed, step)
        losses = train_step(training.model, training.optimizer, batches, rate, training.dtype, seed)
        sums = sums.add(losses.nll, sum(batch.target_tokens for batch in batches))
        progress = progress.model_copy(update={"step": step, "work": progress.work + step_work(batches), **position})
        training.report.advance(step)
        seconds = progress.seconds + time.perf_counter() - clock
        last = is_over(config, step, seconds)
        validating = last or step % config.validate_every == 0
        saving = last or _saves(config, progress, seconds)
        if not (validating or saving or step % config.log_every == 0):
            continue
        loss = sums.mean()  # waits for the device, so that the clock counts all of its work
        seconds = time.perf_counter() - clock
        progress = _count(progress, sums, seconds)
        training.report.train(describe("train", progress, loss, rate), sums.tokens / seconds)
        if validating:
            with _timed(step, "validated"):
                progress = validate(training, progress, rate)
        last = last or is_stale(config, progress)
        if saving or last:
            progress = progress.model_copy(update={"checkpoint_seconds": progress.seconds})
            with _timed(step, "checkpoint written"):
                save_checkpoint(
                    training.checkpoints, training.model, training.optimizer, progress, keep=config.keep_checkpoints
                )
        if last:
            break
        sums, clock = Sums.zero(device), time.perf_counter()
    return progress


def is_over(config: TrainConfig, step: int, seconds: float) -> bool:
    """Whether a training has had its steps or its time."""
    return step >= config.max_steps or (config.max_minutes is not None and seconds >= 60 * config.max_minutes)


def is_stale(config: TrainConfig, progress: Progress) -> bool:
    """Whether dev has not become better for as long as the settings allow."""
    return config.early_stop is not None and progress.stale >= config.early_stop


def _saves(config: TrainConfig, progress: Progress, seconds: float) -> bool:
    if config.checkpoint_minutes and seconds - progress.checkpoint_seconds >= 60 * config.checkpoint_minutes:
        return True
    return progress.step % config.checkpoint_every == 0


def _steps(corpora: Corpora, config: TrainConfig, progress: Progress) -> Iterator[tuple[list[Batch], dict[str, int]]]:
    """What each step learns from, without end, from where ``progress`` stands; each with the position behind it."""
    batches = _batches(corpora, config, progress)
    while True:
        group = list(islice(batches, config.accumulate))
        yield [batch for batch, _ in group], group[-1][1]


def _batches(corpora: Corpora, config: TrainConfig, progress: Progress) -> Iterator[tuple[Batch, dict[str, int]]]:
    epoch, window, done = progress.epoch, progress.window, progress.batch
    while True:
        plan = plan_epoch(corpora.train, config.batch_tokens, config.seed, epoch, corpora.weights)
        resegment = corpora.resegment(epoch) if corpora.resegment else None
        for index in range(window, plan.windows):
            planned = plan.window(index)
            size = f"{len(planned.batches):,} batches, {100 * planned.padding:.1f}% padding"
            _log.debug(f"epoch {epoch}, window {index + 1} of {plan.windows}: {size}")
            for batch in read_batches(corpora.train, planned.batches[done:], corpora.special, resegment):
                done += 1
                if config.symbol_dropout:
                    unknown = corpora.special.unknown
                    batch = drop_symbols(batch, config.symbol_dropout, unknown, (config.seed, epoch))  # noqa: PLW2901
                yield batch, {"epoch": epoch, "window": index, "batch": done}
            done = 0
        epoch, window = epoch + 1, 0


@contextmanager
def _timed(step: int, what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    _log.debug(f"step {step}: {what} in {time.perf_counter() - start:.2f} s")


def _count(progress: Progress, sums: Sums, seconds: float) -> Progress:
    return progress.model_copy(
        update={
            "target_tokens": progress.target_tokens + sums.tokens,
            "seconds": progress.seconds + seconds,
        }
    )


def _mix(seed: int, step: int) -> int:
    """A seed of its own for every step of every training."""
    return (seed * 1_000_003 + step) % 2**63
