"""The training loop: batches in, a trained model and its checkpoints out."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import torch

from transduce.config import TrainConfig
from transduce.data import Batch, Share, deal, drop_symbols, plan_epoch, read_batches
from transduce.training.memory import keep_freed_memory
from transduce.training.parallel import connect, gather_model
from transduce.training.progress import Progress
from transduce.training.requests import Abandoned
from transduce.training.schedule import cooldown, learning_rate
from transduce.training.session import Corpora, Sums, Training, describe
from transduce.training.step import step_seed, train_step
from transduce.training.validation import validate
from transduce.training.watch import Watch
from transduce.training.work import join_work, step_work
from transduce.training.writer import CheckpointWriter

_log = logging.getLogger(__name__)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` until it is over, or asked to stop, and return how far it came.

    Raises:
        TransduceError: The last checkpoint could not be written.
    """
    keep_freed_memory()
    processes = training.processes
    seconds = None if processes.alone else 60 * training.config.hang_minutes
    with (
        _open_writer(training) as writer,
        training.requests.within_steps(),
        Watch(seconds, str(processes)) as watch,
        processes.lost("training with them"),
    ):
        if progress.unvalidated:
            progress = _validate(training, progress, writer)
            if progress.unvalidated:  # stopped once more
                return progress
            if is_finished(training.config, progress):
                writer.write(progress)
                writer.finish()
                return progress
        progress = _train(training, progress, writer, watch)
        writer.finish()
    return progress


def _open_writer(training: Training) -> CheckpointWriter:
    return CheckpointWriter(
        training.checkpoints,
        training.model,
        training.optimizer,
        keep=training.config.keep_checkpoints,
        before=training.report.flush,
        processes=training.processes,
    )


def _train(training: Training, progress: Progress, writer: CheckpointWriter, watch: Watch) -> Progress:
    config, requests, processes = training.config, training.requests, training.processes
    network = connect(training.model, processes, config.parallel)
    share = Share(processes.rank, processes.number, config.accumulate)
    sums = Sums.zero(training.device)
    clock = time.perf_counter()
    watch.beat(f"step {progress.step + 1}")
    for batches, position in _steps(training.corpora, config, progress, share):
        step = progress.step + 1
        rate = _rate(training, step)
        # What a step draws depends on seed and step alone, so a resumed training draws what this one would have.
        torch.manual_seed(_mix(config.seed, step))
        seed = step_seed(config.seed, step)
        work = join_work(step_work(batches), processes)
        losses = train_step(network, training.optimizer, batches, rate, training.dtype, seed, tokens=work.target)
        sums = sums.add(losses.nll, work.target)
        progress = progress.model_copy(update={"step": step, "work": progress.work + work, **position})
        training.report.advance(step)
        seconds = processes.agree(progress.seconds + time.perf_counter() - clock)
        last = is_over(config, step, seconds)
        validating = last or step % config.validate_every == 0
        regular = last or _saves(config, progress, seconds)
        asked = requests.take(step, processes)
        watch.beat(f"step {step + 1}")
        if not (validating or regular or asked.any or step % config.log_every == 0):
            continue
        loss = sums.mean(processes)  # waits for the device, so that the clock counts all of its work
        seconds = processes.agree(time.perf_counter() - clock)
        progress = _count(progress, sums, seconds)
        training.report.train(describe("train", progress, loss, rate), sums.tokens / seconds)
        watch.rest()
        if validating:
            progress = _validate(training, progress, writer)
        # Between then and now there was time for more to be asked.
        more = requests.take(step, processes)
        last = last or is_stale(config, progress)
        if regular or last or asked.any or more.any:
            progress = _mark(progress, asked=not (regular or last))
            writer.write(progress)
        if last or more.stop:
            break
        sums, clock = Sums.zero(training.device), time.perf_counter()
        watch.beat(f"step {step + 1}")
    return progress


def _validate(training: Training, progress: Progress, writer: CheckpointWriter) -> Progress:
    """Have the first process measure dev; the others wait, however long that takes, and go on from what it found."""
    processes = training.processes
    if processes.alone:
        return _measure(training, progress, writer)
    whole = replace(training, model=gather_model(training.model, processes))
    return Progress.model_validate_json(
        processes.lead("measuring dev", lambda: _measure(whole, progress, writer).model_dump_json())
    )


def _measure(training: Training, progress: Progress, writer: CheckpointWriter) -> Progress:
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
    epoch, window, done, turn = progress.epoch, progress.window, progress.batch, 0
    while True:
        plan = plan_epoch(corpora.train, config.batch_tokens, config.seed, epoch, corpora.weights)
        resegment = corpora.resegment(epoch) if corpora.resegment else None
        for index in range(window, plan.windows):
            planned = plan.window(index)
            size = f"{len(planned.batches):,} batches, {100 * planned.padding:.1f}% padding"
            _log.debug(f"epoch {epoch}, window {index + 1} of {plan.windows}: {size}")
            share.check(planned.batches)
            left = planned.batches[done:]
            own = deal(left, share, corpora.train.sizes, turn)
            parts = read_batches(corpora.train, own, corpora.special, resegment)
            for _ in left:
                batch = next(parts) if share.takes(turn % share.accumulate) else None
                done, turn = done + 1, turn + 1
                if config.symbol_dropout and batch is not None:
                    unknown = corpora.special.unknown
                    batch = drop_symbols(batch, config.symbol_dropout, unknown, (config.seed, epoch))
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
