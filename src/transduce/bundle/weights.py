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
from transduce.config.files import ANEW, check_size

# As the format names them.
_FLOATING: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES: Final = {dtype: name for name, dtype in _FLOATING.items()} | {torch.int8: "I8", torch.int32: "I32"}
_ALIGNED: Final = 64
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
    with open_weights(path) as stored:
        for name, place in wanted.items():
            if part is None:
                stored.fill(place, name)
            else:
                place.copy_(part(stored.read(name, place.dtype), place))


@contextmanager
def open_weights(path: Path) -> Iterator["StoredWeights"]:
    """A ``.safetensors`` file that ``check_weights`` has found to be what it should, to be read tensor by tensor."""
    with path.open("rb") as file:
        yield StoredWeights(path, file)


def check_weights(wanted: Mapping[str, Tensor], path: Path) -> None:
    """Compare names and shapes, of which ``wanted`` needs no more, with a file's; no tensor is read.

    Raises:
        BadInputError: The file is missing or damaged, or holds other tensors.
    """
    with _opened(path) as stored:
        _compare(stored, wanted, path)


def count_tensors(path: Path) -> int:
    """How many tensors a ``.safetensors`` file holds; none is read.

    Raises:
        BadInputError: The file is missing or damaged.
    """
    with _opened(path) as stored:
        return len(stored.keys())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file, mapped: whoever keeps one copies it, as the file may change.

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


def save_aligned(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> None:
    """Write a ``.safetensors`` file that is mapped and computed with in place, and flush it to disk.

    Vectors are read fastest where they begin at 64 bytes. The library aligns to 8; so do those tensors here that take
    no multiple of 64, which come last.

    Raises:
        OSError: The disk does not take it.
    """
    ordered = sorted(tensors.items(), key=lambda item: item[1].nbytes % _ALIGNED != 0)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    place = 0
    for name, tensor in ordered:
        types = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = types | {"data_offsets": [place, place + tensor.nbytes]}
        place += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


@final
@dataclass(frozen=True)
class _Entry:
    """Where a file has a tensor's numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    place: int


@final
class StoredWeights:
    """The tensors of an open file.

    The library would map the file: all that was read of it counts as memory of the process.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self._path, self._file, self._entries = path, file, _read_header(file)

    def fill(self, place: Tensor, name: str) -> None:
        """Read a tensor into one of its shape.

        Raises:
            BadInputError: A number is not finite, or the file has become shorter.
        """
        if place.device.type == "cpu" and place.dtype == self._entries[name].dtype and place.is_contiguous():
            self._fill(place, name, place.dtype)
        else:
            place.copy_(self.read(name, place.dtype))

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """A tensor as the file has it, whose numbers are finite as numbers of ``dtype``, too.

        Raises:
            BadInputError: One is not, or the file has become shorter.
        """
        entry = self._entries[name]
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        self._fill(tensor, name, dtype)
        return tensor

    def _fill(self, tensor: Tensor, name: str, dtype: torch.dtype) -> None:
        content = tensor.detach().view(-1).view(torch.uint8).numpy().data
        self._file.seek(self._entries[name].place)
        if self._file.readinto(content) < content.nbytes:
            raise BadInputError(
                f"{self._path}: became shorter while it was read: somebody writes to it, wait and read it again"
            )
        if not _is_finite(tensor, dtype):
            raise BadInputError(
                f"{self._path}: {name} has entries that are no finite numbers: the file is damaged: {ANEW}"
            )


def _read_header(file: BufferedReader) -> dict[str, _Entry]:
    """What the file holds, as the library has checked it: behind a length of 8 bytes, JSON; then all numbers."""
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {
        name: _Entry(_FLOATING[one["dtype"]], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
        for name, one in header.items()
    }


def _is_finite(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether all numbers are finite, as numbers of that type too.

    The least and the largest tell: both are NaN where any is, and found twenty times as fast as each is looked at.
    """
    return tensor.numel() == 0 or all(bool(bound.to(dtype).isfinite()) for bound in tensor.aminmax())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, mapped: the library has compared the places of all tensors with its size."""
    check_size(path, _MOST_BYTES)
    try:
        path.open("rb").close()  # of one that may not be read, the library says that there is none
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such weights file: {ANEW}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        with safe_open(path, framework="pt") as stored:
            yield stored
    except (SafetensorError, OSError) as error:
        raise BadInputError(f"{path}: damaged weights file, or a part of one ({error}): {ANEW}") from error


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
