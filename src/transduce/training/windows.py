"""The windows of a training's text, from a store or from a stream, and which of their batches are still to be done."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, final

from transduce.config import BadInputError, TrainConfig
from transduce.data import Pairs, Position, Store, Stream, Window, plan_epoch
from transduce.training.progress import Progress, is_over
from transduce.training.session import Corpora, Training
from transduce.training.watch import Watch

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0  # from one look whether a window is read to the next

# Told again and again whether this process has its next window; whether all have. It may raise ``Interrupted``.
Pause = Callable[[bool], bool]


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """The training is to end, and what it would learn from next is not read yet, or cannot be: its cause says why."""


def look_up(training: Training, watch: Watch, stand: Callable[[], tuple[int, float]], ready: bool) -> bool:
    """Look up from reading the next window; ``stand`` has the steps and seconds of the training so far.

    Returns:
        Whether all processes have it.

    Raises:
        Interrupted: The training is to end before that.
    """
    processes = training.processes
    if not processes.sum([not ready])[0]:
        return True
    step, seconds = stand()
    watch.beat("reading the training corpora")
    asked = training.requests.take(step, processes)
    if asked.checkpoint:
        training.requests.ask_checkpoint()  # when there is a step to write it after
    if asked.stop or is_over(training.config, step, processes.agree(seconds)):
        raise Interrupted
    return False


@final
@dataclass(frozen=True)
class Opened:
    """A window, its place in the training, and where it begins in a stream."""

    epoch: int
    index: int
    pairs: Pairs
    window: Window
    position: Position | None = None


def open_windows(corpora: Corpora, config: TrainConfig, progress: Progress, pause: Pause) -> Iterator[Opened]:
    """All windows from where ``progress`` stands, without end but for that of a stream."""
    train = corpora.train
    opened = _of_store(train, corpora, config, progress) if isinstance(train, Store) else _of(train, progress, pause)
    for each in opened:
        size = f"{len(each.window.batches):,} batches, {100 * each.window.padding:.1f}% padding"
        _log.debug(f"epoch {each.epoch}, window {each.index + 1}: {size}")
        yield each


def _of_store(store: Store, corpora: Corpora, config: TrainConfig, progress: Progress) -> Iterator[Opened]:
    epoch, window = progress.epoch, progress.window
    while True:
        plan = plan_epoch(store, config.batch_tokens, config.seed, epoch, corpora.weights)
        for index in range(window, plan.windows):
            yield Opened(epoch, index, store, plan.window(index))
        epoch, window = epoch + 1, 0


def _of(stream: Stream, progress: Progress, pause: Pause) -> Iterator[Opened]:
    with stream.open(progress.epoch, progress.window, progress.stream) as windows:
        while True:
            while not pause(windows.is_ready(_LOOK_SECONDS)):
                pass
            try:
                each = windows.take()
            except BadInputError as error:
                raise Interrupted from error
            if each is None:
                return
            yield Opened(each.epoch, each.index, each.pairs, each.planned, each.position)
