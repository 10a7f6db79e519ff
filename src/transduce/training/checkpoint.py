"""Checkpoints as they are on disk: the folders ``step-N`` of a run, verified by their manifests, read and averaged."""

import hashlib
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn

from transduce.bundle import load_weights, read_tensors
from transduce.config import BadInputError
from transduce.config.disk import replace_directory, write_flushed
from transduce.training.parallel import part_like
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress

_log = logging.getLogger(__name__)

MODEL: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
STATE: Final = "state.json"


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    """Fill model and optimizer in place.

    Raises:
        BadInputError: A file is missing, damaged, or of another model.
    """
    if not check_files(path, MODEL, OPTIMIZER, STATE):
        _log.warning(f"{path}: no manifest, an older version wrote it: damage might not be noticed")
    progress = read_progress(path)
    load_weights(model, path / MODEL, part_like)
    optimizer.state.clear()
    if progress.step > 0:  # before the first step Adam has no state
        _load_optimizer(model, optimizer, path / OPTIMIZER)
    return progress


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint by name.

    Raises:
        BadInputError: They are missing or damaged.
    """
    check_files(path, MODEL)
    return read_tensors(path / MODEL)


def read_progress(path: Path) -> Progress:
    """How far the training was at a checkpoint.

    Raises:
        BadInputError: The file is missing or damaged.
    """
    try:
        return Progress.model_validate_json((path / STATE).read_bytes())
    except (OSError, ValidationError) as error:
        raise BadInputError(f"{path / STATE}: damaged checkpoint: {error}".splitlines()[0]) from error


def load_newest(
    folder: Path, model: nn.Module, optimizer: torch.optim.Adam, processes: Processes = ALONE, *, finite: bool = False
) -> Progress:
    """Fill model and optimizer in place from the newest checkpoint that is whole; all processes must call it.

    Damaged ones are named in warnings, and put aside as ``step-N.damaged`` once an older one is found to be whole.
    With ``finite``, only from one whose last step had a finite gradient, and moved the weights.

    Raises:
        BadInputError: No checkpoint is whole and of this model; the error is the newest one's.
    """
    own: list[tuple[Progress, Path]] = []

    def work() -> str:
        own.append(_load_newest(folder, model, optimizer, finite=finite))
        return own[0][1].name

    # The first process goes ahead, and puts aside what is damaged.
    name = processes.lead("reading the checkpoint", work)
    return own[0][0] if processes.first else load_checkpoint(folder / name, model, optimizer)


def _load_newest(folder: Path, model: nn.Module, optimizer: torch.optim.Adam, *, finite: bool) -> tuple[Progress, Path]:
    damaged: list[tuple[Path, BadInputError]] = []
    for _, path in reversed(list_checkpoints(folder)):
        try:
            progress = load_checkpoint(path, model, optimizer)
        except BadInputError as error:
            damaged.append((path, error))
            continue
        if finite and progress.health.in_a_row:
            continue
        for aside, damage in damaged:
            _log.warning(f"{aside.name} is put aside, going on from {path.name} instead: {damage}")
            replace_directory(aside, aside.with_name(f"{aside.name}.damaged"))
        return progress, path
    if damaged:
        newest, why = damaged[0]
        raise BadInputError(
            f"{why}: there is no checkpoint to go on from: put {newest} there again from a copy, or train anew with "
            f"another --out (here, with {folder} deleted, the first model that is measured would replace the best one)"
        ) from why
    none = "all in it were written while gradients failed" if list_checkpoints(folder) else "there is none in it"
    raise BadInputError(f"{folder}: {none}")


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Finished checkpoints as (step, path), oldest first.

    An older one of a step stands alone for a moment while a newer one takes its place: a crash may have come then.
    """
    found = [(re.fullmatch(r"step-(\d+)(\.older)?", path.name), path) for path in folder.glob("step-*")]
    whole = [(int(match[1]), path) for match, path in found if match and not match[2]]
    steps = {step for step, _ in whole}
    alone = [(int(match[1]), path) for match, path in found if match and match[2] and (path / STATE).is_file()]
    return sorted([*whole, *(each for each in alone if each[0] not in steps)])


def remove_newer(folder: Path, step: int) -> None:
    """Delete the checkpoints behind a step, to which a training has gone back: they are of a course that it left.

    Where one cannot be deleted, it is told in a warning.
    """
    for number, path in list_checkpoints(folder):
        if number > step:
            remove_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Delete one; where it cannot be, it is told in a warning."""
    # Under another name first: a crash must not leave half a checkpoint under a whole one's.
    leaving = path.with_name(f"{path.name}.unfinished")
    try:
        path.rename(leaving)
        shutil.rmtree(leaving)
    except OSError as error:
        _log.warning(f"{error.filename or path}: a checkpoint could not be deleted: {error.strerror or error}")


def list_regular(folder: Path) -> list[tuple[int, Path]]:
    """Those of ``list_checkpoints`` that the settings asked for, and no signal."""
    return [(step, path) for step, path in list_checkpoints(folder) if not _is_asked(path)]


def _is_asked(path: Path) -> bool:
    try:
        return read_progress(path).asked
    except BadInputError:
        return False  # whoever reads it will say so


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Adam, path: Path) -> None:
    tensors = read_tensors(path)
    if not tensors:
        return  # no step has moved the weights yet: all were skipped
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            stored = tensors.get(f"{name}.{key}")
            expected = torch.Size() if key == "step" else parameter.shape
            if stored is None or stored.shape != expected:
                raise BadInputError(f"{path}: {name}.{key} is missing or of another shape: not this run's optimizer")
            spread = stored.to(parameter.device) if key == "step" else part_like(stored, parameter)
            optimizer.state[parameter][key] = spread


MANIFEST: Final = "manifest.json"


class Entry(BaseModel):
    """What is known of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


_ENTRIES: Final = TypeAdapter(dict[str, Entry])


def write_manifest(folder: Path) -> None:
    """Describe the files of a folder in one more."""
    entries = {path.name: _describe(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    write_flushed(folder / MANIFEST, _ENTRIES.dump_json(entries, indent=2).decode() + "\n")


def check_files(folder: Path, *names: str) -> bool:
    """See that files are what was written; whether there is a manifest to tell: older versions wrote none.

    Raises:
        BadInputError: A file or the manifest is missing or damaged; it is named.
    """
    path = folder / MANIFEST
    try:
        entries = _ENTRIES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValidationError) as error:
        raise BadInputError(f"{path}: damaged checkpoint: {error}".splitlines()[0]) from error
    for name in names:
        try:
            found = _describe(folder / name)
        except OSError as error:
            raise BadInputError(f"{folder / name}: damaged checkpoint: {error.strerror}") from error
        if difference := _differ(found, entries.get(name)):
            raise BadInputError(f"{folder / name}: damaged checkpoint: {difference}")
    return True


def _describe(path: Path) -> Entry:
    with path.open("rb") as stream:
        return Entry(bytes=path.stat().st_size, sha256=hashlib.file_digest(stream, "sha256").hexdigest())


def _differ(found: Entry, wanted: Entry | None) -> str | None:
    if wanted is None:
        return f"{MANIFEST} does not name it"
    if found.bytes != wanted.bytes:
        return f"{found.bytes:,} bytes instead of {wanted.bytes:,}"
    return None if found == wanted else f"its sha256 is not that in {MANIFEST}"


def average_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over all checkpoints, summed in float64, in the type of the first.

    Raises:
        ValueError: There is no checkpoint.
    """
    sums: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, tensor in weights.items():
            if name in sums:
                sums[name] += tensor
            else:
                sums[name], types[name] = tensor.double(), tensor.dtype
    if not count:
        raise ValueError("no checkpoints to average")
    return {name: (total / count).to(types[name]) for name, total in sums.items()}
