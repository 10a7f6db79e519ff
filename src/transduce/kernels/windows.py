"""What a one-dimensional convolution reads, over a ragged batch: the neighbours of every symbol, side by side.

A convolution is a linear map of such windows: y_t = W [x_{t + o_1}; ...; x_{t + o_k}] + b, where a symbol outside of
the sequence counts as zero. On a CPU the two are faster than ``F.conv1d``, which works on padding besides and wants
positions last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.device import send
from transduce.kernels.ragged import RaggedLayout


@final
@dataclass(frozen=True)
class Neighbours:
    """The symbols at some ``offsets`` from each symbol of a ragged batch: ``inside`` are those that its row has."""

    offsets: tuple[int, ...]
    inside: Bool[Tensor, "offsets tokens"]

    @classmethod
    def of(cls, layout: RaggedLayout, offsets: Sequence[int]) -> "Neighbours":
        """Those of a batch that lies so."""
        columns = layout.columns
        lengths = send(layout.lengths, columns.device)[layout.indices // layout.longest]
        inside = [(columns + offset >= 0) & (columns + offset < lengths) for offset in offsets]
        return cls(tuple(offsets), torch.stack(inside))

    def windows(self, x: Float[Tensor, "tokens channels"]) -> Float[Tensor, "tokens window"]:
        """[x_{t + o_1}; ...; x_{t + o_k}] for every symbol t, zeros where there is none in its row."""
        if self.offsets == (0,):
            return x
        result: Tensor = _Windows.apply(x, self)  # type: ignore[no-untyped-call]
        return result

    def _parts(self, tokens: int) -> list[tuple[slice, slice]]:
        """Of each offset: the symbols that have such a neighbour in the batch, and those neighbours."""
        firsts = [min(max(0, -offset), tokens) for offset in self.offsets]
        lasts = [max(first, min(tokens, tokens - offset)) for first, offset in zip(firsts, self.offsets, strict=True)]
        return [
            (slice(first, last), slice(first + offset, last + offset))
            for first, last, offset in zip(firsts, lasts, self.offsets, strict=True)
        ]


class _Windows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbours: Neighbours) -> Tensor:  # noqa: ANN401 - torch gives it no type
        ctx.neighbours = neighbours
        inside = neighbours.inside.to(x.dtype).unsqueeze(2)
        tokens, channels = x.shape
        windows = x.new_empty(tokens, len(inside), channels)
        for number, (here, there) in enumerate(neighbours._parts(tokens)):
            windows[: here.start, number] = 0
            windows[here.stop :, number] = 0
            torch.mul(x[there], inside[number, here], out=windows[here, number])
        return windows.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        inside = ctx.neighbours.inside.to(gradient.dtype).unsqueeze(2)
        tokens = len(gradient)
        windows = gradient.reshape(tokens, len(inside), -1)
        of_x = gradient.new_zeros(tokens, windows.shape[2])
        for number, (here, there) in enumerate(ctx.neighbours._parts(tokens)):
            of_x[there].addcmul_(windows[here, number], inside[number, here])
        return of_x, None
