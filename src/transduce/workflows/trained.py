"""A training from Python, and what came of one."""

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pydantic import ValidationError

from transduce.config import METRICS, BadInputError, MetricKey, RunConfig, TrainConfig
from transduce.training import Progress, join_processes, why_finished
from transduce.workflows.initialize import read_training
from transduce.workflows.run_directory import RunDirectory, default_out
from transduce.workflows.train import Callback, train_run


@final
@dataclass(frozen=True)
class Trained:
    """How far a training came, over all its sessions, and its best model on dev, which lies in ``run / "best"``.

    It can stand where a path of the run can: ``transduce.load(trained)``.
    """

    run: Path  # the run directory
    step: int
    ended_by: str | None  # which setting ended it; None: it is not over, as a callback interrupted it
    best_step: int | None  # None while nothing was validated; 0: what it began with
    best_metric: MetricKey | None  # train.best_metric
    best_score: float | None  # in that metric's own units
    init: str | None  # the finished model that it began with

    def __fspath__(self) -> str:
        return str(self.run)


def summarize(run: RunDirectory, config: TrainConfig, progress: Progress) -> Trained:
    """What a training's progress says to people and programs."""
    score, metric = progress.best_score, progress.best_metric
    if score is not None and metric is not None:
        score = METRICS[metric].rank(score)  # a rank's rank is the value again
    ended_by = why_finished(config, progress)
    return Trained(run.root, progress.step, ended_by, progress.best_step, metric, score, progress.init)


def train(
    config: RunConfig | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    resume: bool = False,
    init: str | os.PathLike[str] | None = None,
    carry_vocabulary: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Trained:
    """Train a model, as the command ``transduce train`` does; the data is prepared first, where needed.

    Args:
        config: A run file, or a ``RunConfig``: one that ``transduce.config.read_run`` has read, or one built in code.
        out: The run directory; for a run file that of its name in ``runs`` is the default.
        settings: On top of the run file: a mapping such as ``{"train.max_steps": 500}``, in which None takes a key out,
            or ``"KEY=VALUE"`` each, as of ``--set``.
        resume: Go on from the newest checkpoint. Where there is none, the training starts, with a warning.
        init: A finished model to fine-tune: its weights; and its settings, where the run file has none.
        carry_vocabulary: With ``init``, learn a new tokenizer; symbols that both have keep their embeddings.
        callbacks: Functions that are called with each measurement, a mapping as a line of ``metrics.jsonl`` has it
            (``split`` is "train" or "dev"; losses are nats per target token), in the first of several processes. One
            that returns True interrupts the training behind that step, with a checkpoint. What one raises ends it.

    Raises:
        BadInputError: The run file, a setting or the text is wrong, the run directory holds another training, or none
            is given with a ``RunConfig``.
        StoppedError: A signal ended it: Ctrl-C, or a notebook's button to interrupt.
        TransduceError: Memory is too small, gradients fail again and again, or the last checkpoint could not be
            written.
    """
    called = _check_callbacks(callbacks)
    init = None if init is None else Path(init)
    if isinstance(config, RunConfig):
        run = RunDirectory(_required(out))
        if settings:
            raise BadInputError("settings are for a run file, and a RunConfig has all of its own: change those")
        config = _check(config)
    elif isinstance(config, str | os.PathLike):
        run = RunDirectory(default_out(Path(config)) if out is None else Path(out))
        config = read_training(Path(config), settings, run, resume=resume, init=init, carry_vocabulary=carry_vocabulary)
    else:
        raise BadInputError(
            f"config: {type(config).__name__} was given: give a run file, or a RunConfig (transduce.config.read_run "
            f"reads one)"
        )
    with join_processes(config.train.hang_minutes) as processes:
        progress = train_run(
            config,
            run,
            resume=resume,
            init=init,
            carry_vocabulary=carry_vocabulary,
            processes=processes,
            callbacks=called,
        )
    return summarize(run, config.train, progress)


def _check_callbacks(callbacks: object) -> tuple[Callback, ...]:
    """See before any work that they can be called; what a generator gives is kept."""
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise BadInputError(f"callbacks: {callbacks!r} was given: give a list of functions, such as callbacks=[f]")
    called = tuple(callbacks)
    for each in called:
        if not callable(each) or inspect.iscoroutinefunction(each):
            raise BadInputError(f"callbacks: {each!r} is no plain function of one argument, the measurement")
    return called


def _check(config: RunConfig) -> RunConfig:
    """The same, seen to be valid: pydantic's ``model_copy(update=...)`` looks at nothing."""
    try:
        return RunConfig.model_validate(config.model_dump(exclude_none=True, warnings=False))
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))} = {each['input']!r}: {each['msg']}" for each in error.errors()]
        raise BadInputError(*lines) from error


def _required(out: str | os.PathLike[str] | None) -> Path:
    if out is None:
        raise BadInputError("a RunConfig has no file whose name the run directory could take: give out")
    return Path(out)
