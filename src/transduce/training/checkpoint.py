"""Checkpoints: written whole under another name, then renamed; pruned only when a newer one is safe."""

import logging
import os
import re
import shutil
from pathlib import Path
from typing import Final

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from transduce.bundle import load_weights, read_tensors, replace_directory, save_tensors
from transduce.config import BadInputError
from transduce.training.parallel import gather, part_like
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress

_log = logging.getLogger(__name__)

MODEL: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
STATE: Final = "state.json"


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Adam,
    progress: Progress,
    *,
    keep: int,
    processes: Processes = ALONE,
) -> Path:
    """Write ``folder/step-N``, then delete all but the newest ``keep``.

    All processes call it, as they may hold a part of the tensors each, and the first one writes: the same files for any
    number of processes.
    """
    path = folder / f"step-{progress.step}"
    weights = gather(dict(model.state_dict()), processes)
    moments = gather(_optimizer_tensors(model, optimizer), processes)
    if not processes.first:
        return path
    unfinished = folder / f"{path.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_tensors(weights, unfinished / MODEL)
    save_tensors(moments, unfinished / OPTIMIZER)
    _write_flushed(unfinished / STATE, progress.model_dump_json(indent=2) + "\n")
    replace_directory(unfinished, path)
    for _, older in list_checkpoints(folder)[:-keep]:
        # Under another name first: a crash must not leave half a checkpoint under a whole one's.
        shutil.rmtree(older.rename(older.with_name(f"{older.name}.unfinished")))
    return path


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    """Fill model and optimizer in place.

    Raises:
        BadInputError: A file is missing, damaged, or of another model.
    """
    progress = read_progress(path)
    load_weights(model, path / MODEL, part_like)
    _load_optimizer(model, optimizer, path / OPTIMIZER)
    return progress


def read_progress(path: Path) -> Progress:
    """How far the training was at a checkpoint.

    Raises:
        BadInputError: The file is missing or damaged.
    """
    try:
        return Progress.model_validate_json((path / STATE).read_bytes())
    except (OSError, ValidationError) as error:
        raise BadInputError(f"{path / STATE}: damaged checkpoint: {error}".splitlines()[0]) from error


def load_newest(folder: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    """Fill model and optimizer in place from the newest checkpoint that is whole.

    Damaged ones are named in warnings, and put aside as ``step-N.damaged`` once an older one is found to be whole.

    Raises:
        BadInputError: No checkpoint is whole and of this model; the error is the newest one's.
    """
    damaged: list[tuple[Path, BadInputError]] = []
    for _, path in reversed(list_checkpoints(folder)):
        try:
            progress = load_checkpoint(path, model, optimizer)
        except BadInputError as error:
            damaged.append((path, error))
            continue
        for aside, damage in damaged:
            _log.warning(f"{aside.name} is put aside, going on from {path.name} instead: {damage}")
            replace_directory(aside, aside.with_name(f"{aside.name}.damaged"))
        return progress
    raise damaged[0][1]


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Finished checkpoints as (step, path), oldest first."""
    found = [(re.fullmatch(r"step-(\d+)", path.name), path) for path in folder.glob("step-*")]
    return sorted((int(match[1]), path) for match, path in found if match)


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Adam's state by parameter name: ``NAME.exp_avg`` and so on."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Adam, path: Path) -> None:
    tensors = read_tensors(path)
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            stored = tensors.get(f"{name}.{key}")
            expected = torch.Size() if key == "step" else parameter.shape
            if stored is None or stored.shape != expected:
                raise BadInputError(f"{path}: {name}.{key} is missing or of another shape: not this run's optimizer")
            spread = stored.to(parameter.device) if key == "step" else part_like(stored, parameter)
            optimizer.state[parameter][key] = spread


def _write_flushed(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
