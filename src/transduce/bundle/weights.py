"""Weights in ``.safetensors`` files: what a file holds is compared with what is asked for before any of it is read."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transduce.config import BadInputError
from transduce.config.disk import flush
from transduce.config.files import check_size

# As the format names them.
_FLOATING: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_MOST_BYTES: Final = 2**42


def load_weights(model: torch.nn.Module, path: Path, part: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Fill a model in place from a ``.safetensors`` file, tensor by tensor.

    ``part`` takes a tensor of the file and one of the model, and lays the first out as the second is, where a model is
    spread over processes.

    Raises:
        BadInputError: The file is missing or damaged, its tensors' names or shapes are not the model's, or a weight is
            no finite number.
    """
    wanted = model.state_dict()
    check_weights(wanted, path)
    with path.open("rb") as file:
        entries = _read_header(file)
        for name, place in wanted.items():
            tensor = _read_tensor(file, entries[name], place if part is None else None, path)
            if not bool(tensor.to(place.dtype).isfinite().all()):
                raise BadInputError(f"{path}: {name} has entries that are no finite numbers: the file is damaged")
            if tensor is not place:
                place.copy_(tensor if part is None else part(tensor, place))


def check_weights(wanted: Mapping[str, Tensor], path: Path) -> None:
    """Compare names and shapes, of which ``wanted`` needs no more, with a file's; no tensor is read.

    Raises:
        BadInputError: The file is missing or damaged, or holds other tensors.
    """
    with _opened(path) as stored:
        _compare(stored, wanted, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file.

    Raises:
        BadInputError: The file is missing or damaged.
    """
    with _opened(path) as stored:
        return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a mapping


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a ``.safetensors`` file and flush it to disk; who may read it is the umask's to say, as of other files.

    Raises:
        OSError: The disk does not take it.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # The library says only in words which of the system's errors it met.
        if not (code := re.search(r"os error (\d+)", str(error))):
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
    path.chmod(mode)  # the library puts a file of its own in its place, for the owner alone
    flush(path)


@final
@dataclass(frozen=True)
class _Entry:
    """Where a file has a tensor's numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    place: int


def _read_header(file: BufferedReader) -> dict[str, _Entry]:
    """What the file holds, as the library has checked it: behind a length of 8 bytes, JSON; then all numbers."""
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {
        name: _Entry(_FLOATING[one["dtype"]], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
        for name, one in header.items()
    }


def _read_tensor(file: BufferedReader, entry: _Entry, place: Tensor | None, path: Path) -> Tensor:
    """One tensor's numbers, in ``place`` where that can take them as they are.

    The library would map the file: all that was read of it counts as memory of the process.
    """
    fits = place is not None and place.device.type == "cpu" and place.dtype == entry.dtype and place.is_contiguous()
    numbers = place if place is not None and fits else torch.empty(entry.shape, dtype=entry.dtype)
    content = numbers.detach().view(-1).view(torch.uint8).numpy().data
    file.seek(entry.place)
    if file.readinto(content) < content.nbytes:
        raise BadInputError(f"{path}: became shorter while it was read: somebody writes to it, wait and read it again")
    return numbers


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, mapped: the library has compared the places of all tensors with its size."""
    check_size(path, _MOST_BYTES)
    try:
        path.open("rb").close()  # of one that may not be read, the library says that there is none
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such weights file") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        with safe_open(path, framework="pt") as stored:
            yield stored
    except (SafetensorError, OSError) as error:
        raise BadInputError(f"{path}: damaged weights file: {error}") from error


def _compare(stored: Any, wanted: Mapping[str, Tensor], path: Path) -> None:  # noqa: ANN401 - the library's own
    different = sorted(wanted.keys() ^ set(stored.keys()))
    if different:
        raise BadInputError(f"{path}: weights of another model: {different[0]} is in only one of the two")
    for name, tensor in wanted.items():
        part = stored.get_slice(name)
        shape = tuple(part.get_shape())
        if shape != tuple(tensor.shape):
            raise BadInputError(
                f"{path}: {name} has shape {shape} but the configuration asks for {tuple(tensor.shape)}"
            )
        if part.get_dtype() not in _FLOATING:
            raise BadInputError(f"{path}: {name} is of type {part.get_dtype()}: weights are floating-point numbers")
