"""Writing checkpoints while the training goes on: a copy in memory, written under another name and then renamed."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, final

import torch
from torch import Tensor, nn

from transduce.bundle import save_tensors
from transduce.config import BadInputError, TransduceError
from transduce.config.disk import flush, replace_directory, write_flushed
from transduce.config.errors import remedy
from transduce.kernels import start_threads
from transduce.training.checkpoint import (
    MODEL,
    OPTIMIZER,
    STATE,
    list_checkpoints,
    list_regular,
    read_progress,
    remove_checkpoint,
    write_manifest,
)
from transduce.training.parallel import whole
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """A training at one step: weights by name, Adam's state as ``NAME.exp_avg`` and so on, and how far it has come."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    progress: Progress


def look(model: nn.Module, optimizer: torch.optim.Adam, progress: Progress) -> Snapshot:
    """The training's own tensors: they change with its next step."""
    moments = {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    return Snapshot(dict(model.state_dict()), moments, progress)


@final
class Copies:
    """Memory for one snapshot, used again and again: to ask for it anew each time takes longer than to copy."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def reserve(self, model: nn.Module) -> None:
        """Ask for all of it before it is needed, and touch it: only then does the system give it."""
        for name, weight in model.named_parameters():
            for key in (name, f"{name}.exp_avg", f"{name}.exp_avg_sq"):
                self._reserve(key, weight).zero_()

    def take(self, snapshot: Snapshot, processes: Processes = ALONE) -> Snapshot:
        """A copy of these tensors, good until the next one is taken.

        Where they are sharded over processes, all must call it; they are gathered one at a time, and the first process
        alone keeps them.
        """
        copied: list[dict[str, Tensor]] = [{}, {}]
        for copies, tensors in zip(copied, (snapshot.weights, snapshot.optimizer), strict=True):
            for name, tensor in tensors.items():
                gathered = whole(tensor)
                if processes.first:
                    copies[name] = self._reserve(name, gathered).copy_(gathered, non_blocking=True)
        if any(tensor.is_cuda for tensor in snapshot.weights.values()):
            torch.cuda.synchronize()
        return Snapshot(copied[0], copied[1], snapshot.progress)

    def _reserve(self, name: str, like: Tensor) -> Tensor:
        if name not in self._copies:
            # Pinned memory is what a GPU can write to by itself.
            self._copies[name] = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        return self._copies[name]


@final
class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own; the training waits for the snapshot only.

    Of several processes, the first one writes, and all call ``write`` and ``finish``, as they may hold a part of the
    tensors each: the files are the same for any number of processes.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        optimizer: torch.optim.Adam,
        *,
        keep: int,
        before: Callable[[], None],
        processes: Processes = ALONE,
    ) -> None:
        """``before`` puts on disk what belongs with a checkpoint, and runs in the thread too."""
        self._folder, self._model, self._optimizer, self._keep, self._before = folder, model, optimizer, keep, before
        self._copies, self._processes = Copies(), processes
        # OpenMP would keep a team of threads for this one. With more threads than processors, even if they all sleep,
        # GNU's lets the training's own sleep after every operation too: small models' steps take half as long again.
        self._thread = start_threads(1, "checkpoint")
        self._busy: Future[OSError | None] = self._thread.submit(self._reserve)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is being written is finished, whatever else goes wrong."""
        self._thread.shutdown(wait=True)

    def write(self, progress: Progress) -> None:
        """Write ``step-N`` of the training as it is now; waits for the one before it."""
        self._processes.lead("writing a checkpoint", self._become_free)
        start = time.perf_counter()
        snapshot = self._copies.take(look(self._model, self._optimizer, progress), self._processes)
        _log.debug(f"step {progress.step}: the snapshot took {time.perf_counter() - start:.2f} s")
        if self._processes.first:
            self._busy = self._thread.submit(self._write, snapshot)

    def wait(self) -> OSError | None:
        """Until nothing is being written; why the last one could not be, if it could not."""
        return self._busy.result()

    def finish(self) -> None:
        """Wait for the last checkpoint of a training.

        Raises:
            TransduceError: It could not be written.
        """
        self._processes.lead("writing the last checkpoint", self._end)

    def _become_free(self) -> str:
        self.wait()  # why the one before could not be written was said then
        return ""

    def _end(self) -> str:
        if error := self.wait():
            raise TransduceError(
                f"{describe_failure(self._folder, error)}. The training is ended, and its last steps are not on disk: "
                f"{_remedy(error)}, then --resume trains them again"
            ) from error
        return ""

    def _reserve(self) -> None:
        if self._processes.first:
            self._copies.reserve(self._model)

    def _write(self, snapshot: Snapshot) -> OSError | None:
        start, step = time.perf_counter(), snapshot.progress.step
        try:
            self._before()
            path = save_checkpoint(self._folder, snapshot, keep=self._keep)
        except OSError as error:
            _log.warning(
                f"{describe_failure(self._folder, error)}. The training goes on and tries again with the next "
                f"checkpoint: {_remedy(error)}"
            )
            return error
        level = logging.INFO if snapshot.progress.asked else logging.DEBUG
        _log.log(level, f"step {step}: checkpoint written in {time.perf_counter() - start:.2f} s: {path}")
        return None


def save_checkpoint(folder: Path, snapshot: Snapshot, *, keep: int) -> Path:
    """Write ``folder/step-N``, then delete all older ones but the newest ``keep``.

    Raises:
        OSError: It could not be written: the older ones are all there.
    """
    path = folder / f"step-{snapshot.progress.step}"
    unfinished = folder / f"{path.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        save_tensors(snapshot.weights, unfinished / MODEL)
        save_tensors(snapshot.optimizer, unfinished / OPTIMIZER)
        write_flushed(unfinished / STATE, snapshot.progress.model_dump_json(indent=2) + "\n")
        write_manifest(unfinished)
        for above in (unfinished, folder.parent):
            flush(above)
        replace_directory(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)  # it may be what fills the disk
        raise
    _prune(folder, keep)
    return path


def describe_failure(folder: Path, error: OSError) -> str:
    """What could not be written, why, and what there is instead."""
    newest = [path.name for _, path in list_checkpoints(folder)[-1:]]
    left = f"{newest[0]} is whole and stays" if newest else "there is no older one"
    return f"{error.filename or folder}: the checkpoint could not be written: {error.strerror or error}; {left}"


def _remedy(error: OSError) -> str:
    return remedy(error) or "see to this disk"


def _prune(folder: Path, keep: int) -> None:
    """Delete what newer checkpoints replace: regular ones beyond ``keep``, asked ones that are not the newest.

    The newest regular one that a training can go back to stays, too; where there is none, the newest of all.
    """
    checkpoints, regular = ([path for _, path in found] for found in (list_checkpoints(folder), list_regular(folder)))
    kept = {*regular[-keep:], *(_find_sound(regular) or _find_sound(checkpoints)), checkpoints[-1]}
    for older in checkpoints:
        if older not in kept:
            remove_checkpoint(older)
    for rest in folder.glob("step-*.unfinished"):
        shutil.rmtree(rest, ignore_errors=True)


def _find_sound(checkpoints: Sequence[Path]) -> list[Path]:
    """The newest one whose last step had a finite gradient, if there is one."""
    for path in reversed(checkpoints):
        with suppress(BadInputError):
            if not read_progress(path).health.in_a_row:
                return [path]
    return []
