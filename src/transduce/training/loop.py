"""The training loop: batches in, a trained model and its checkpoints out."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import torch

from transduce.config import TrainConfig
from transduce.data import Batch, Share, deal, draw_rows, drop_symbols, padding_share, plan_epoch, read_batches
from transduce.training.checkpoint import save_checkpoint
from transduce.training.memory import keep_freed_memory
from transduce.training.parallel import connect, gather_model
from transduce.training.progress import Progress
from transduce.training.schedule import cooldown, learning_rate
from transduce.training.session import Corpora, Sums, Training, describe
from transduce.training.step import train_step
from transduce.training.validation import validate
from transduce.training.watch import Watch
from transduce.training.work import join_work, step_work

_log = logging.getLogger(__name__)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` until it is over and return how far it came."""
    keep_freed_memory()
    seconds = None if training.processes.alone else 60 * training.config.hang_minutes
    with Watch(seconds, str(training.processes)) as watch, training.processes.lost("training with them"):
        return _train(training, progress, watch)


def _train(training: Training, progress: Progress, watch: Watch) -> Progress:
    config, device, processes = training.config, training.device, training.processes
    network = connect(training.model, processes, config.parallel)
    share = Share(processes.rank, processes.number, config.accumulate)
    sums = Sums.zero(device)
    clock = time.perf_counter()
    watch.beat(f"step {progress.step + 1}")
    for batches, position in _steps(training.corpora, config, progress, share):
        step = progress.step + 1
        rate = learning_rate(step, training.model.config.d_model, config.warmup_steps, config.learning_rate_factor)
        rate *= cooldown(step, config.max_steps, config.cooldown_steps)
        # Each step's dropout depends on seed and step alone, so a resumed training draws what this one would have.
        torch.manual_seed(_mix(config.seed, step))
        work = join_work(step_work(batches), processes)
        losses = train_step(network, training.optimizer, batches, rate, training.dtype, tokens=work.target)
        sums = sums.add(losses.nll, work.target)
        progress = progress.model_copy(update={"step": step, "work": progress.work + work, **position})
        training.report.advance(step)
        seconds = processes.agree(progress.seconds + time.perf_counter() - clock)
        last = is_over(config, step, seconds)
        validating = last or step % config.validate_every == 0
        saving = last or _saves(config, progress, seconds)
        watch.beat(f"step {step + 1}")
        if not (validating or saving or step % config.log_every == 0):
            continue
        loss = sums.mean(processes)  # waits for the device, so that the clock counts all of its work
        seconds = processes.agree(time.perf_counter() - clock)
        progress = _count(progress, sums, seconds)
        training.report.train(describe("train", progress, loss, rate), sums.tokens / seconds)
        watch.rest()
        if validating:
            with _timed(step, "validated"):
                progress = _validate(training, progress, rate)
        last = last or is_stale(config, progress)
        if saving or last:
            progress = progress.model_copy(update={"checkpoint_seconds": progress.seconds})
            with _timed(step, "checkpoint written"):
                _save(training, progress)
        if last:
            break
        sums, clock = Sums.zero(device), time.perf_counter()
        watch.beat(f"step {step + 1}")
    return progress


def _validate(training: Training, progress: Progress, rate: float) -> Progress:
    """Have the first process measure dev; the others go on from what it found."""
    whole = replace(training, model=gather_model(training.model, training.processes))
    work = "measuring dev"
    return Progress.model_validate_json(
        training.processes.lead(work, lambda: validate(whole, progress, rate).model_dump_json())
    )


def _save(training: Training, progress: Progress) -> None:
    """Have the first process write a checkpoint; the others wait."""
    keep, processes = training.config.keep_checkpoints, training.processes
    save_checkpoint(training.checkpoints, training.model, training.optimizer, progress, keep=keep, processes=processes)
    processes.lead("writing a checkpoint", str)


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


def _steps(
    corpora: Corpora, config: TrainConfig, progress: Progress, share: Share
) -> Iterator[tuple[list[Batch], dict[str, int]]]:
    """What each step learns from, without end, from where ``progress`` stands; each with the position behind it."""
    batches = _batches(corpora, config, progress, share)
    while True:
        group = list(islice(batches, config.accumulate))
        yield [batch for batch, _ in group if batch is not None], group[-1][1]


def _batches(
    corpora: Corpora, config: TrainConfig, progress: Progress, share: Share
) -> Iterator[tuple[Batch | None, dict[str, int]]]:
    """This process's part of every batch of the plan, None where it is other processes' alone."""
    epoch, done, turn = progress.epoch, progress.batch, 0
    # The model sees the end symbol too.
    lengths = corpora.train.source_lengths + 1, corpora.train.target_lengths + 1
    while True:
        rows = draw_rows(corpora.train.corpora, corpora.weights, config.seed, epoch)
        plan = plan_epoch(*lengths, config.batch_tokens, config.seed, epoch, rows)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(f"epoch {epoch}: {len(plan):,} batches, {100 * padding_share(*lengths, plan):.1f}% padding")
        share.check(plan)
        resegment = corpora.resegment(epoch) if corpora.resegment else None
        own = deal(plan[done:], share, lengths[0] + lengths[1], turn)
        parts = read_batches(corpora.train, own, corpora.special, resegment)
        for _ in plan[done:]:
            batch = next(parts) if share.takes(turn % share.accumulate) else None
            done, turn = done + 1, turn + 1
            if config.symbol_dropout and batch is not None:
                unknown = corpora.special.unknown
                batch = drop_symbols(batch, config.symbol_dropout, unknown, (config.seed, epoch, done))
            yield batch, {"epoch": epoch, "batch": done}
        epoch, done = epoch + 1, 0


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
