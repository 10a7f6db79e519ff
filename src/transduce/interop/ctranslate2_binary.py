"""The file ``model.bin`` of CTranslate2: named variables one behind the other, in floating-point numbers or integers.

Its layout, little-endian: the layout's version, the model's kind and its revision; so many variables, each with its
name, axes, sizes, number format, bytes and content; so many second names of variables. A string has its length in
front, the zero behind it counted.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from transduce.config import BadInputError
from transduce.config.files import check_place, check_size
from transduce.interop.checkpoints import check_numbers

_MOST_BYTES: Final = 2**42
_VERSIONS: Final = range(4, 7)  # before, a variable did not say its number format
WITH_SETTINGS: Final = 6  # the first layout whose settings all stand in another file
KIND: Final = "TransformerSpec"
_WITH_NAMES: Final = 3  # its first revision whose variables have today's names
_WITH_SIDES: Final = 5  # its first revision that says these of each stack, and not once for both
_OF_BOTH: Final = ("num_heads", "pre_norm", "activation")
# By their numbers in the file; bfloat16 is read as integers of its width, which NumPy knows.
_FORMATS: Final = (np.float32, np.int8, np.int16, np.int32, np.float16, np.int16)
_BFLOAT16: Final = 5
_INTEGERS: Final = (torch.int8, torch.int16)
_SCALE: Final = "_scale"
_POSITIONS: Final = "/position_encodings/encodings"
_INT16_SCALE: Final = 1000.0  # where an older file does not say it


@final
@dataclass(frozen=True)
class Binary:
    """A model's layout and kind, its variables as floating-point numbers, and those that are single numbers.

    ``texts`` are the names of special symbols, which layouts before ``WITH_SETTINGS`` may have here.
    """

    layout: int
    kind: str
    variables: dict[str, Tensor]
    numbers: dict[str, int | float]
    texts: dict[str, str]


def read_binary(path: Path) -> Binary:
    """Read ``model.bin``; integers are multiplied out.

    Raises:
        BadInputError: It is missing, damaged, shorter or longer than it says, or of an older or newer layout.
    """
    check_place(path)
    check_size(path, _MOST_BYTES)
    try:
        with path.open("rb") as stream:
            content = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such model of CTranslate2") from error
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from error
    try:
        layout, kind, stored = _parse(content, path)
        texts = _take_texts(stored) if layout < WITH_SETTINGS else {}
    except (struct.error, ValueError, IndexError) as error:
        raise BadInputError(f"{path}: damaged model of CTranslate2: {error}") from error
    scales = {name: stored[name] for name in stored if name.removesuffix(_SCALE) in stored and name.endswith(_SCALE)}
    plain = {name: tensor for name, tensor in stored.items() if name not in scales}
    made: dict[tuple[int, int], Tensor] = {}  # what several names share stays one
    for name, tensor in plain.items():
        key = id(tensor), id(scales.get(name + _SCALE))
        if tensor.dim() and key not in made:
            made[key] = _multiply_out(name, tensor, scales, path)
    return Binary(
        layout,
        kind,
        {name: made[id(tensor), id(scales.get(name + _SCALE))] for name, tensor in plain.items() if tensor.dim()},
        {name: tensor.item() for name, tensor in plain.items() if not tensor.dim()},
        texts,
    )


def _take_texts(stored: dict[str, Tensor]) -> dict[str, str]:
    """Take out what is text, whose bytes are stored as integers."""
    names = [name for name in ("unk_token", "bos_token", "eos_token") if name in stored]
    return {name: stored.pop(name).numpy().tobytes().decode() for name in names}


def _multiply_out(name: str, tensor: Tensor, scales: dict[str, Tensor], path: Path) -> Tensor:
    """Integers are weights times their row's scale, or one scale for all.

    Tables of positions keep their type: it says how far they may be from sinusoids.
    """
    if tensor.dtype not in _INTEGERS:
        check_numbers({name: tensor}, path)
        return tensor if name.endswith(_POSITIONS) else tensor.float()
    scale = scales.get(name + _SCALE)
    if scale is None and tensor.dtype == torch.int16:
        scale = torch.tensor(_INT16_SCALE)
    if scale is None or scale.numel() not in (1, len(tensor)):
        raise BadInputError(f"{path}: {name} is of integers without a scale for each row: damaged")
    return tensor.float() / scale.float().view(-1, *[1] * (tensor.dim() - 1))


@final
class _Reader:
    """A place in the file."""

    def __init__(self, content: memoryview) -> None:
        self.content, self.place = content, 0

    def take(self, format_: str) -> int:
        """One number."""
        (value,) = struct.unpack("<" + format_, self.bytes(struct.calcsize("<" + format_)))
        return int(value)

    def text(self) -> str:
        """A string, without the zero that ends it."""
        return bytes(self.bytes(self.take("H"))).removesuffix(b"\0").decode()

    def bytes(self, length: int) -> memoryview:
        """So many bytes, still in the file."""
        if length > len(self.content) - self.place:
            raise IndexError(f"{length:,} bytes belong at {self.place:,}, and it ends at {len(self.content):,}")
        self.place += length
        return self.content[self.place - length : self.place]


def _parse(content: memoryview, path: Path) -> tuple[int, str, dict[str, Tensor]]:
    reader = _Reader(content)
    if (version := reader.take("I")) not in _VERSIONS:
        raise BadInputError(
            f"{path}: layout {version:,} of CTranslate2, or none: {_VERSIONS[0]} to {_VERSIONS[-1]} can be read"
        )
    kind, revision = reader.text(), reader.take("I")
    if kind == KIND and revision < _WITH_NAMES:
        raise BadInputError(
            f"{path}: revision {revision:,} of {kind}, whose variables have other names: from {_WITH_NAMES} on it can "
            f"be read, convert the model again"
        )
    variables: dict[str, Tensor] = {}
    for _ in range(reader.take("I")):
        name = reader.text()
        variables[name] = _parse_variable(reader, name, path)
    for _ in range(reader.take("I")):
        alias, name = reader.text(), reader.text()
        for ending in ("", _SCALE):
            if name + ending in variables:
                variables[alias + ending] = variables[name + ending]
    if reader.place != len(content):
        raise BadInputError(f"{path}: {len(content) - reader.place:,} bytes behind its end: damaged")
    if kind == KIND and revision < _WITH_SIDES:
        both = {name: variables.pop(name) for name in _OF_BOTH if name in variables}
        variables |= {f"{side}/{name}": each for side in ("encoder", "decoder") for name, each in both.items()}
    return version, kind, variables


def _parse_variable(reader: _Reader, name: str, path: Path) -> Tensor:
    shape = [reader.take("I") for _ in range(reader.take("B"))]
    number, size = reader.take("B"), reader.take("I")
    if number >= len(_FORMATS) or prod(shape) * np.dtype(_FORMATS[number]).itemsize != size:
        raise BadInputError(f"{path}: {name} has shape {tuple(shape)}, format {number} and {size:,} bytes: damaged")
    # A copy is aligned, and the file may go.
    values = np.frombuffer(reader.bytes(size), _FORMATS[number]).reshape(shape).copy()
    tensor = torch.from_numpy(values)
    return tensor.view(torch.bfloat16) if number == _BFLOAT16 else tensor
