"""A training from Python, and what came of one."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from transduce.config import METRICS, BadInputError, MetricKey, RunConfig
from transduce.training import Progress, join_processes
from transduce.workflows.initialize import read_training
from transduce.workflows.run_directory import RunDirectory, default_out
from transduce.workflows.train import Callback, train_run


@final
@dataclass(frozen=True)
class Trained:
    """How far a training came, over all its sessions, and its best model on dev, which lies in ``run / "best"``."""

    run: Path  # the run directory; `transduce.load` takes it for its best model
    step: int
    best_step: int | None  # None while nothing was validated; 0: what it began with
    best_metric: MetricKey | None  # train.best_metric
    best_score: float | None  # in that metric's own units
    init: str | None  # the finished model that it began with


def summarize(run: RunDirectory, progress: Progress) -> Trained:
    """What a training's progress says to people and programs."""
    score, metric = progress.best_score, progress.best_metric
    if score is not None and metric is not None:
        score = METRICS[metric].rank(score)  # a rank's rank is the value again
    return Trained(run.root, progress.step, progress.best_step, metric, score, progress.init)


def train(
    config: RunConfig | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Iterable[str] = (),
    resume: bool = False,
    init: str | os.PathLike[str] | None = None,
    carry_vocabulary: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train a model, as the command ``transduce train`` does; the data is prepared first, where needed.

    Args:
        config: A run file, or what ``transduce.config.read_run`` makes of one.
        out: The run directory; for a run file that of its name in ``runs`` is the default.
        settings: ``KEY=VALUE`` on top of the run file, as of ``--set``.
        resume: Go on from the newest checkpoint. Where there is none, the training starts, with a warning.
        init: A finished model to fine-tune: its weights; and its settings, where the run file has none.
        carry_vocabulary: With ``init``, learn a new tokenizer; symbols that both have keep their embeddings.
        callbacks: Called with each measurement, a mapping as a line of ``metrics.jsonl`` has it (``split`` is "train"
            or "dev"; losses are nats per target token), in the first of several processes. One that returns True
            interrupts the training behind that step, with a checkpoint. What one raises ends it at once.

    Raises:
        BadInputError: The run file, a setting or the text is wrong, the run directory holds another training, or none
            is given with a ``RunConfig``.
        StoppedError: A signal ended it: Ctrl-C, or a notebook's button to interrupt.
        TransduceError: Memory is too small, gradients fail again and again, or the last checkpoint could not be
            written.
    """
    init = None if init is None else Path(init)
    if isinstance(config, RunConfig):
        run = RunDirectory(_required(out))
        if settings := list(settings):
            raise BadInputError(
                f"settings are applied to a run file, and a RunConfig has none: read_run(FILE, {settings!r})"
            )
    else:
        run = RunDirectory(default_out(Path(config)) if out is None else Path(out))
        config = read_training(Path(config), settings, run, resume=resume, init=init, carry_vocabulary=carry_vocabulary)
    with join_processes(config.train.hang_minutes) as processes:
        progress = train_run(
            config,
            run,
            resume=resume,
            init=init,
            carry_vocabulary=carry_vocabulary,
            processes=processes,
            callbacks=callbacks,
        )
    return summarize(run, progress)


def _required(out: str | os.PathLike[str] | None) -> Path:
    if out is None:
        raise BadInputError("a RunConfig has no file whose name the run directory could take: give out")
    return Path(out)
