"""Whether a training that is interrupted ends exactly where one that is not does: tried, on the run itself."""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from transduce.bundle import read_tensors
from transduce.config import BadInputError, RunConfig, StoppedError
from transduce.training import (
    MODEL,
    OPTIMIZER,
    Abandoned,
    Progress,
    Requests,
    list_checkpoints,
    listen,
    read_progress,
)
from transduce.workflows.prepare import load_prepared, prepare, share_preparation
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

# A clock says something else each time, and only the second of two halves knows that it is one.
_MAY_DIFFER: Final = {"seconds", "checkpoint_seconds"}


def verify_resume(
    config: RunConfig,
    prepared: RunDirectory,
    folder: Path,
    steps: int,
    say: Callable[[str], None],
    init: Path | None = None,
) -> bool:
    """Train 2 ``steps`` in one process, and ``steps`` and ``steps`` in two others; whether all of it is the same.

    ``folder`` is empty and takes both run directories; where ``prepared`` holds a preparation, they begin with it, and
    with the weights of ``init`` where that is given.

    Raises:
        BadInputError: The training's text ends before so many steps.
        StoppedError: A signal ended it.
    """
    requests = Requests()
    try:
        with listen(requests):
            return _verify(config, prepared, folder, steps, say, init)
    except Abandoned:
        by = requests.stopped_by
        assert by is not None
        raise StoppedError(f"stopped by {by.name}: nothing is kept of it", by) from None


def _verify(
    config: RunConfig,
    prepared: RunDirectory,
    folder: Path,
    steps: int,
    say: Callable[[str], None],
    init: Path | None,
) -> bool:
    to_the_end = {"max_minutes": None, "checkpoint_minutes": None, "early_stop": None}
    train = config.train.model_copy(update={"max_steps": 2 * steps, **to_the_end})
    config = config.model_copy(update={"train": train})
    whole, halves = RunDirectory(folder / "whole"), RunDirectory(folder / "halves")
    if load_prepared(prepared):
        share_preparation(prepared, whole)
    prepare(config, whole)
    share_preparation(whole, halves)
    _train_elsewhere(config, whole, None, init)
    last, _ = list_checkpoints(whole.checkpoints)[-1]
    if last != 2 * steps:
        raise BadInputError(
            f"--steps {steps}: the training's text ends at step {last}, before twice as many: give fewer"
        )
    for stop_after in (steps, None):
        _train_elsewhere(config, halves, stop_after, init)
    ends = [list_checkpoints(run.checkpoints)[-1][1] for run in (whole, halves)]
    same = [
        _compare(name, read_tensors(ends[0] / file), read_tensors(ends[1] / file), say)
        for name, file in (("weights", MODEL), ("optimizer", OPTIMIZER))
    ]
    same.append(_compare_progress(read_progress(ends[0]), read_progress(ends[1]), say))
    say(
        f"{2 * steps} steps in one process and {steps} + {steps} in two end "
        + ("bit for bit alike" if all(same) else "differently")
    )
    return all(same)


def _train_elsewhere(config: RunConfig, run: RunDirectory, stop_after: int | None, init: Path | None) -> None:
    """In a process of its own, which begins with nothing but the files."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        going_on = run.has_checkpoints
        # Of a few steps of a training, its schedule is nothing to warn of.
        work = partial(
            train_run, resume=going_on, init=init, stop_after=stop_after, session_only=True, own_process=True
        )
        others = set(multiprocessing.active_children())
        training = process.submit(work, config, run)
        try:
            training.result()
        except (Abandoned, KeyboardInterrupt):
            for child in set(multiprocessing.active_children()) - others:
                child.kill()  # else it would train to its end, for nobody
            raise


def _compare(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], say: Callable[[str], None]) -> bool:
    different = sorted(one.keys() ^ other.keys())
    for key in one.keys() & other.keys():
        # As bytes: a number that is none is equal to itself, and minus zero is not zero.
        if one[key].shape != other[key].shape or not torch.equal(_bytes(one[key]), _bytes(other[key])):
            different.append(key)
    numbers = sum(tensor.numel() for tensor in one.values())
    result = "the same bits" if not different else f"{len(different)} differ: {', '.join(sorted(different)[:5])}"
    say(f"{name}: {len(one)} tensors, {numbers:,} numbers: {result}")
    return not different


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def _compare_progress(one: Progress, other: Progress, say: Callable[[str], None]) -> bool:
    known = one.model_dump().keys() | other.model_dump().keys()
    names = [name for name in Progress.model_fields if name in known and name not in _MAY_DIFFER]
    different = [name for name in names if getattr(one, name) != getattr(other, name)]
    said = [f"{name} was {getattr(one, name)} and is {getattr(other, name)}" for name in different]
    say(f"state: {', '.join(names)}: {'; '.join(said) or 'the same'}")
    return not different
