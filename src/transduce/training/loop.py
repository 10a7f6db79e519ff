"""The training loop: batches in, a trained model and its checkpoints out."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import torch

from transduce.config import TrainConfig
from transduce.data import Batch, drop_symbols, plan_epoch, read_batches
from transduce.training.memory import keep_freed_memory
from transduce.training.progress import Progress
from transduce.training.requests import Abandoned
from transduce.training.schedule import cooldown, learning_rate
from transduce.training.session import Corpora, Sums, Training, describe
from transduce.training.step import step_seed, train_step
from transduce.training.validation import validate
from transduce.training.work import step_work
from transduce.training.writer import CheckpointWriter

_log = logging.getLogger(__name__)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` until it is over, or asked to stop, and return how far it came.

    Raises:
        TransduceError: The last checkpoint could not be written.
    """
    keep_freed_memory()
    keep, before = training.config.keep_checkpoints, training.report.flush
    with (
        CheckpointWriter(training.checkpoints, training.model, training.optimizer, keep=keep, before=before) as writer,
        training.requests.within_steps(),
    ):
        if progress.unvalidated:
            progress = _validate(training, progress, writer)
            if progress.unvalidated:  # stopped once more
                return progress
            if is_finished(training.config, progress):
                writer.write(progress)
                writer.finish()
                return progress
        progress = _train(training, progress, writer)
        writer.finish()
    return progress


def _train(training: Training, progress: Progress, writer: CheckpointWriter) -> Progress:
    config, requests = training.config, training.requests
    sums = Sums.zero(training.device)
    clock = time.perf_counter()
    for batches, position in _steps(training.corpora, config, progress):
        step = progress.step + 1
        rate = _rate(training, step)
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
        regular = last or _saves(config, progress, seconds)
        asked = requests.take_checkpoint() or requests.stops(step)
        if not (validating or regular or asked or step % config.log_every == 0):
            continue
        loss = sums.mean()  # waits for the device, so that the clock counts all of its work
        seconds = time.perf_counter() - clock
        progress = _count(progress, sums, seconds)
        training.report.train(describe("train", progress, loss, rate), sums.tokens / seconds)
        if validating:
            progress = _validate(training, progress, writer)
        # Between then and now there was time for more to be asked.
        asked |= requests.take_checkpoint() or requests.stops(step)
        last = last or is_stale(config, progress)
        if regular or last or asked:
            progress = _mark(progress, asked=not (regular or last))
            writer.write(progress)
        if last or requests.stops(step):
            break
        sums, clock = Sums.zero(training.device), time.perf_counter()
    return progress


def _validate(training: Training, progress: Progress, writer: CheckpointWriter) -> Progress:
    """Measure dev, unless the training is to stop: then it is done when the training goes on."""
    if training.config.average_last > 1:
        writer.wait()
    try:
        with training.requests.within_steps(False), _timed(progress.step, "validated"):
            measured = validate(training, progress, _rate(training, progress.step))
    except Abandoned:
        return progress.model_copy(update={"unvalidated": True})
    return measured.model_copy(update={"unvalidated": False})


def _rate(training: Training, step: int) -> float:
    config = training.config
    rate = learning_rate(step, training.model.config.d_model, config.warmup_steps, config.learning_rate_factor)
    return rate * cooldown(step, config.max_steps, config.cooldown_steps)


def is_over(config: TrainConfig, step: int, seconds: float) -> bool:
    """Whether a training has had its steps or its time."""
    return step >= config.max_steps or (config.max_minutes is not None and seconds >= 60 * config.max_minutes)


def is_stale(config: TrainConfig, progress: Progress) -> bool:
    """Whether dev has not become better for as long as the settings allow."""
    return config.early_stop is not None and progress.stale >= config.early_stop


def is_finished(config: TrainConfig, progress: Progress) -> bool:
    """Whether there is nothing left to do."""
    over = is_over(config, progress.step, progress.seconds) or is_stale(config, progress)
    return over and not progress.unvalidated


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


def _mark(progress: Progress, *, asked: bool) -> Progress:
    """Progress as a checkpoint holds it; one that was asked for leaves the rhythm of the others as it is."""
    return progress.model_copy(update={"asked": asked} | ({} if asked else {"checkpoint_seconds": progress.seconds}))


def _mix(seed: int, step: int) -> int:
    """A seed of its own for every step of every training."""
    return (seed * 1_000_003 + step) % 2**63
