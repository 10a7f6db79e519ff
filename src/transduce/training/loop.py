"""What happens between the steps of a training: they are judged and logged, dev is measured, checkpoints are saved."""

import json
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import final

from torch import nn

from transduce.config import TrainConfig, TransduceError
from transduce.data import Batch, Share
from transduce.kernels import KeptMemory, give_back_memory, is_out_of_memory, keep_freed_memory
from transduce.training.health import Examined, Examiner, Health
from transduce.training.interval import Interval
from transduce.training.micro_batches import fit, within_memory
from transduce.training.objective import weigh_outputs
from transduce.training.parallel import connect, gather_model
from transduce.training.process import put_back, seed_generator
from transduce.training.progress import Pace, Progress, is_finished, is_over, is_read, is_stale
from transduce.training.recovery import go_back
from transduce.training.requests import Abandoned, Asked
from transduce.training.session import Training, describe
from transduce.training.step import StepBatches, Taken, read_step_batches, scheduled_rate, step_seed, train_step
from transduce.training.validation import describe_shortage, validate
from transduce.training.watch import Watch
from transduce.training.windows import Interrupted, look_up
from transduce.training.work import join_work, step_work
from transduce.training.writer import CheckpointWriter

_log = logging.getLogger(__name__)


def train(training: Training, progress: Progress) -> Progress:
    """Train from ``progress`` until it is over, or asked to stop, and return how far it came.

    Raises:
        BadInputError: The training corpora end before there is a step.
        TransduceError: The last checkpoint could not be written, memory is too small, or gradients fail again and
            again.
    """
    processes = training.processes
    seconds = None if processes.alone else 60 * training.config.hang_minutes
    with (
        put_back(training.device),
        _open_writer(training) as writer,
        training.requests.within_steps(),
        Watch(seconds, str(processes)) as watch,
        processes.lost("training with them"),
    ):
        if progress.unvalidated:
            progress, shortage = _validate(training, progress, writer)
            if shortage is not None:
                raise _too_little_memory(shortage, progress)
            if progress.unvalidated:  # stopped once more
                return progress
            if progress.step == 0:
                # What a training begins with was measured. From now on --resume knows of it without --init.
                progress = _mark(progress, asked=True)
                writer.write(progress)
            # Whoever heard of dev's scores may want no more of the training.
            finished, asked = is_finished(training.config, progress), training.requests.take(progress.step, processes)
            if finished or asked.any:
                # The last checkpoint is a regular one, as it is where nothing interrupted the training.
                progress = _mark(progress, asked=False) if finished else progress
                writer.write(progress)
            if finished or asked.stop:
                writer.finish()
                return progress
        network = connect(training.model, processes, training.config.parallel)
        share = Share(processes.rank, processes.number, training.config.accumulate)
        progress = progress.model_copy(update={"micro_batches": fit(training, progress, share)})
        if training.own_process:
            keep_freed_memory()  # from here on: what was tried in vain is given back
        while (progress := _train(training, network, share, progress, writer, watch)).health.lost:
            watch.rest()
            progress = go_back(training, progress, writer)
        writer.finish()
    return progress


def _open_writer(training: Training) -> CheckpointWriter:
    return CheckpointWriter(
        training.checkpoints,
        training.model,
        training.optimizer,
        keep=training.config.keep_checkpoints,
        before=partial(_before_writing, training),
        processes=training.processes,
    )


def _before_writing(training: Training) -> None:
    training.hooks.check_place()
    training.report.flush()


@final
@dataclass(frozen=True)
class _Due:
    """What is to be done behind a step."""

    validation: bool
    checkpoint: bool  # a regular one
    asked: Asked
    figures: bool
    last: bool

    @property
    def any(self) -> bool:
        return self.validation or self.checkpoint or self.asked.any or self.figures


def _train(
    training: Training, network: nn.Module, share: Share, progress: Progress, writer: CheckpointWriter, watch: Watch
) -> Progress:
    """Step by step, and between steps what is due, until the training is over, asked to stop, or its gradients fail."""
    config, processes = training.config, training.processes
    interval, examiner = Interval.begin(training.device), Examiner(behind=training.device.type == "cuda")
    kept = KeptMemory() if training.own_process else None
    pace, timed = Pace(progress.step, progress.seconds), training.session_only
    watch.beat(f"step {progress.step + 1}")
    saved = progress.step
    pause = partial(look_up, training, watch, lambda: (progress.step, progress.seconds + interval.seconds))
    try:
        for step_batches in read_step_batches(training.corpora, config, progress, share, pause):
            interval, progress = _step(training, network, step_batches, interval, progress, examiner)
            if kept is not None:
                kept.look()
            if progress.health.lost:
                return progress
            seconds = processes.agree(progress.seconds + interval.seconds)
            training.report.advance(progress.step, pace.left(config, progress.step, seconds))
            if not timed and (timed := pace.is_known(config, seconds)):
                _warn(training, pace.cut_short(config, progress.step, seconds))
            due = _find_due(training, progress, seconds)
            watch.beat(f"step {progress.step + 1}")
            if not due.any:
                continue
            progress = _measure(training, interval, progress, examiner)
            if progress.health.lost:
                return progress
            watch.rest()
            progress, ended = _validate_and_save(training, progress, due, writer)
            if ended:
                break
            saved = progress.step if due.checkpoint or due.asked.any else saved
            interval = Interval.begin(training.device)
            watch.beat(f"step {progress.step + 1}")
    except Interrupted as end:
        watch.rest()
        # What one process alone cannot read is no reason for the others to write a checkpoint.
        if end.__cause__ is None or processes.alone:
            progress = _leave(training, interval, progress, examiner, writer, saved)
        if end.__cause__ is not None:
            raise end.__cause__ from None
    return progress


def _leave(
    training: Training,
    interval: Interval,
    progress: Progress,
    examiner: Examiner,
    writer: CheckpointWriter,
    saved: int,
) -> Progress:
    """End behind the last step, as there is no text for another one; ``saved`` is that of the last checkpoint."""
    if interval.sums.tokens:
        progress = _measure(training, interval, progress, examiner)
    else:
        waited = training.processes.agree(interval.seconds)
        progress = progress.model_copy(update={"seconds": progress.seconds + waited})
    over = is_over(training.config, progress.step, progress.seconds)
    if progress.health.lost or not (over or progress.step > saved):
        return progress
    measured = progress.validated == progress.step  # while it waited for more text
    due = _Due(
        validation=over and not measured,
        checkpoint=over,
        asked=Asked(checkpoint=False, stop=True),
        figures=False,
        last=over,
    )
    return _validate_and_save(training, progress, due, writer)[0]


def _step(
    training: Training,
    network: nn.Module,
    step_batches: StepBatches,
    interval: Interval,
    progress: Progress,
    examiner: Examiner,
) -> tuple[Interval, Progress]:
    """One step, and what the device has told of those before it."""
    work = join_work(step_work(step_batches.batches), training.processes)
    taken, micro_batches = _take(training, network, step_batches.batches, work.target, progress)
    learned = work if taken.rewards is None else join_work(taken.rewards.work, training.processes)
    interval = interval.add(taken, work.target)
    own = taken.losses.nll / taken.losses.tokens
    examiner.add(progress.step + 1, step_batches.places, work.target, own, taken.gradient_norm)
    interval, health = _judge(training, interval, examiner.read(), progress.health)
    changes = {
        "step": progress.step + 1,
        "work": progress.work + learned,
        "micro_batches": micro_batches,
        "health": health,
        **step_batches.position,
    }
    return interval, progress.model_copy(update=changes)


def _find_due(training: Training, progress: Progress, seconds: float) -> _Due:
    """What the settings, the clock and requests ask for behind this step; all processes must call it."""
    config, step = training.config, progress.step
    last = is_over(config, step, seconds) or is_read(progress)
    return _Due(
        validation=last or step % config.validate_every == 0,
        checkpoint=last or _saves(config, progress, seconds),
        asked=training.requests.take(step, training.processes),
        figures=step % config.log_every == 0,
        last=last,
    )


def _measure(training: Training, interval: Interval, progress: Progress, examiner: Examiner) -> Progress:
    """Report the steps of an interval, unless the last of them are found to have failed too often."""
    processes = training.processes
    interval, health = _judge(training, interval, examiner.read(everything=True), progress.health)
    progress = progress.model_copy(update={"health": health})
    if health.lost:
        return progress
    loss = interval.sums.mean(processes)  # waits for the device, so that the clock counts all of its work
    seconds, tokens = processes.agree(interval.seconds), interval.sums.tokens
    counted = {"target_tokens": progress.target_tokens + tokens, "seconds": progress.seconds + seconds}
    progress = progress.model_copy(update=counted)
    # Where all steps were skipped, there is none.
    measured = describe("train", progress, loss if tokens else None, _rate(training, progress.step))
    measured |= interval.own_figures(processes) | {"skipped": health.skipped}
    measured |= {} if progress.stream is None else {"records": progress.stream.read}
    training.report.train(measured, tokens / seconds)
    return progress


def _validate_and_save(
    training: Training, progress: Progress, due: _Due, writer: CheckpointWriter
) -> tuple[Progress, bool]:
    """Measure dev and write a checkpoint, as far as they are due; and whether the training ends here.

    Raises:
        TransduceError: Memory is too small to measure dev: the steps up to here are on disk.
    """
    shortage = None
    if due.validation:
        progress, shortage = _validate(training, progress, writer)
    # Between then and now there was time for more to be asked.
    more = training.requests.take(progress.step, training.processes)
    last = due.last or is_stale(training.config, progress)
    if due.checkpoint or last or due.asked.any or more.any or shortage is not None:
        progress = _mark(progress, asked=not (due.checkpoint or last))
        writer.write(progress)
    if shortage is not None:
        writer.finish()
        raise _too_little_memory(shortage, progress)
    return progress, last or more.stop


def _warn(training: Training, message: str | None) -> None:
    if message and training.processes.first:
        _log.warning(message)


def _take(
    training: Training, network: nn.Module, batches: list[Batch], tokens: int, progress: Progress
) -> tuple[Taken, int]:
    """The next step, and in how many parts memory made it take its batches."""
    config, step = training.config, progress.step + 1
    rate, seed = _rate(training, step), step_seed(config.seed, step)

    def take(parts: list[Batch]) -> Taken:
        # What a step draws depends on seed and step alone, so a resumed training draws what this one would have.
        seed_generator(_mix(config.seed, step), training.device)
        if config.objective == "likelihood":
            return train_step(network, training.optimizer, parts, rate, training.dtype, seed, tokens=tokens)
        weighed = weigh_outputs(training, parts, seed)
        taken = train_step(network, training.optimizer, weighed.batches, rate, training.dtype, seed, tokens=tokens)
        return replace(taken, losses=weighed.losses, rewards=weighed.rewards)

    return within_memory(training, take, batches, progress.micro_batches)


def _judge(
    training: Training, interval: Interval, examined: Iterable[Examined], health: Health
) -> tuple[Interval, Health]:
    """What the device has told of the last steps, and how the training stands by that."""
    for each in examined:
        interval = interval.examine(each)
        health, message = health.judge(each)
        _warn(training, message)
        health, worse = health.compare(training.model.config.vocab_size)
        if worse is not None:
            rate = "learning_rate_factor" if training.config.learning_rate is None else "learning_rate"
            _warn(
                training,
                f"step {each.step:,}: {worse}: train anew (--out DIR) with a lower train.{rate}, or with more "
                f"train.warmup_steps",
            )
    return interval, health


def _validate(training: Training, progress: Progress, writer: CheckpointWriter) -> tuple[Progress, str | None]:
    """Have the first process measure dev; the others wait, however long that takes, and go on from what it found."""
    processes = training.processes
    if processes.alone:
        return _measure_dev(training, progress, writer)
    whole = replace(training, model=gather_model(training.model, processes))

    def work() -> str:
        measured, shortage = _measure_dev(whole, progress, writer)
        return json.dumps([measured.model_dump_json(), shortage])

    measured, shortage = json.loads(processes.lead("measuring dev", work))
    return Progress.model_validate_json(measured), shortage


def _measure_dev(training: Training, progress: Progress, writer: CheckpointWriter) -> tuple[Progress, str | None]:
    """Measure dev, unless the training is to stop, or memory is too small: then it is done when the training goes on.

    Returns:
        The progress, and what memory was too small for.
    """
    unvalidated = progress.model_copy(update={"unvalidated": True})
    if training.config.average_last > 1:
        writer.wait()
    try:
        with training.requests.within_steps(False), _timed(progress.step, "validated"):
            measured = validate(training, progress, _rate(training, progress.step))
    except Abandoned:
        return unvalidated, None
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        shortage = describe_shortage(training.corpora.dev, error)
    else:
        return measured.model_copy(update={"unvalidated": False, "validated": progress.step}), None
    give_back_memory(failed=True)  # writing a checkpoint takes some
    return unvalidated, shortage


def _too_little_memory(shortage: str, progress: Progress) -> TransduceError:
    return TransduceError(
        f"{shortage}. The training stands at step {progress.step:,}, and no step of it is lost: free memory, or go on "
        f"where there is more, and --resume measures dev first; or take that pair out of data.dev, or lower "
        f"train.batch_tokens, and train anew with another --out"
    )


def _rate(training: Training, step: int) -> float:
    return scheduled_rate(step, training.config, training.model.width)


def _saves(config: TrainConfig, progress: Progress, seconds: float) -> bool:
    if config.checkpoint_minutes and seconds - progress.checkpoint_seconds >= 60 * config.checkpoint_minutes:
        return True
    return progress.step % config.checkpoint_every == 0


@contextmanager
def _timed(step: int, what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    _log.debug(f"step {step}: {what} in {time.perf_counter() - start:.2f} s")


def _mark(progress: Progress, *, asked: bool) -> Progress:
    """Progress as a checkpoint holds it; one that was asked for leaves the rhythm of the others as it is."""
    return progress.model_copy(update={"asked": asked} | ({} if asked else {"checkpoint_seconds": progress.seconds}))


def _mix(seed: int, step: int) -> int:
    """A seed of its own for every step of every training."""
    return (seed * 1_000_003 + step) % 2**63
