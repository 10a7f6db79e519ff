"""Where a native model's numbers come from: a model's weights, prepacked as they are asked for; or what was kept."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from transduce.kernels import Format, PrepackedMatrix, prepack
from transduce.kernels.products import Empty

Weight = Float[Tensor, "_ inputs"]
Bias = Float[Tensor, " _"] | None

# glibc's largest threshold: what is larger never comes from the heap.
_BLOCK: Final = 2**25
_ALIGNED: Final = 64  # bytes: a line of the processor's caches


@runtime_checkable
class NumberSource(Protocol):
    """What the stacks of a native model are made of, which ask for the same things in the same order every time."""

    def matrix(self, weights: Sequence[Weight], biases: Sequence[Bias]) -> PrepackedMatrix:
        """Several maps of the same inputs as one; all of them have a bias, or none."""
        ...

    def numbers(self, parameter: Float[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
        """A parameter that is read as it is: the same tensor each time it is asked for."""
        ...


@final
class Prepacking:
    """A model's weights, prepacked in a number format.

    Where the model has no storage, ``fill`` writes the numbers of a parameter into a tensor of its shape: no more of
    the weights is in memory at a time than one matrix is made of.
    """

    def __init__(self, format_: Format, fill: Callable[[Tensor, Tensor], None] | None = None) -> None:
        self._format: Format = format_
        self._fill = fill
        self._blocks, self._passing = _Blocks(), torch.empty(0)
        self._made: list[PrepackedMatrix | Tensor] = []
        self._as_they_are: dict[int, tuple[Tensor, Tensor]] = {}  # with the parameters: the ids of dead ones come again

    def matrix(self, weights: Sequence[Weight], biases: Sequence[Bias]) -> PrepackedMatrix:
        """The maps, concatenated and prepacked."""
        several = [each for each in biases if each is not None]
        bias = torch.cat([self._read(each, torch.empty) for each in several]) if several else None
        made = prepack(self._concatenate(weights), bias, self._format, self._blocks.empty)
        self._made.append(made)
        return made

    def numbers(self, parameter: Float[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
        """The parameter's own numbers."""
        if id(parameter) not in self._as_they_are:
            found = self._read(parameter, self._blocks.empty)
            self._as_they_are[id(parameter)] = parameter, found
            self._made.append(found)
        return self._as_they_are[id(parameter)][1]

    def tensors(self) -> dict[str, Tensor]:
        """All that was made so far, by names that ``Kept`` knows."""
        found: dict[str, Tensor] = {}
        for number, made in enumerate(self._made):
            if isinstance(made, Tensor):
                found[f"{number}"] = made
                continue
            found |= {f"{number}.panels": made.panels, f"{number}.scales": made.scales, f"{number}.sums": made.sums}
            if made.bias is not None:
                found[f"{number}.bias"] = made.bias
        return found

    def _concatenate(self, weights: Sequence[Weight]) -> Tensor:
        if len(weights) == 1 and id(weights[0]) in self._as_they_are:
            return self._as_they_are[id(weights[0])][1]
        if self._fill is None:
            return torch.cat([each.detach() for each in weights]) if len(weights) > 1 else weights[0].detach()
        size = sum(each.numel() for each in weights)
        if len(self._passing) < size:
            self._passing = torch.empty(size)
        joined = self._passing[:size].view(-1, weights[0].shape[1])
        parts = torch.split(joined, [len(each) for each in weights])
        for each, part in zip(weights, parts, strict=True):
            self._fill(each, part)
        return joined

    def _read(self, parameter: Tensor, empty: Empty) -> Tensor:
        if self._fill is None:
            return parameter.detach()
        place = empty(parameter.shape, dtype=torch.float32)
        self._fill(parameter, place)
        return place


@final
class _Blocks:
    """Memory of what stays, in large blocks: piece by piece, it would keep what lay beside it from being given back.

    The C library takes a block from the system, and what is not used of it takes no memory.
    """

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor that is still to be filled."""
        size = math.prod(shape) * dtype.itemsize
        taken = size + -size % _ALIGNED
        if len(self._free) < taken:
            self._free = torch.empty(max(taken, _BLOCK), dtype=torch.uint8)
        own, self._free = self._free[:size], self._free[taken:]
        return own.view(dtype).view(*shape)


@final
class Kept:
    """What ``Prepacking.tensors`` gave of a model of the same configuration, wherever it has been since.

    Nothing of it is taken on trust that decides where the kernels read: types and shapes are compared.
    """

    def __init__(self, tensors: Mapping[str, Tensor], format_: Format) -> None:
        self._tensors, self._format = dict(tensors), format_
        self._number = 0
        self._as_they_are: dict[int, tuple[Tensor, Tensor]] = {}

    def matrix(self, weights: Sequence[Weight], biases: Sequence[Bias]) -> PrepackedMatrix:
        """The next one.

        Raises:
            ValueError: It is missing, or of another size or number format.
        """
        panels, scales, sums = (self._take(part) for part in ("panels", "scales", "sums"))
        bias = None if biases[0] is None else self._take("bias")
        self._number += 1
        outputs, inputs = sum(map(len, weights)), weights[0].shape[1]
        return PrepackedMatrix(panels, scales, sums, bias, outputs, inputs, self._format)  # compares sizes and types

    def numbers(self, parameter: Float[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
        """The next ones, or those that this parameter had before.

        Raises:
            ValueError: They are missing, or of another type or shape.
        """
        if id(parameter) not in self._as_they_are:
            found = self._take("")
            if found.shape != parameter.shape or found.dtype != torch.float32:
                raise ValueError(f"{self._number} is {found.dtype} {tuple(found.shape)}, not {tuple(parameter.shape)}")
            self._as_they_are[id(parameter)] = parameter, found
            self._number += 1
        return self._as_they_are[id(parameter)][1]

    def check_end(self) -> None:
        """Look whether all was asked for.

        Raises:
            ValueError: Something is left.
        """
        if self._tensors:
            raise ValueError(f"{next(iter(self._tensors))} is one too many")

    def _take(self, part: str) -> Tensor:
        name = f"{self._number}.{part}".rstrip(".")
        if name not in self._tensors:
            raise ValueError(f"{name} is missing")
        return self._tensors.pop(name)
