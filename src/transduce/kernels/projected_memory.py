"""Keys and values of one memory for several attentions, by one product: that of all their maps side by side.

On a CUDA device one large product takes less time than several, the memory is rounded once, and its gradient is summed
up within a product, in float32, where autograd would add those of the layers one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.linear_maps import Maps, chain_rows


@final
@dataclass(frozen=True)
class ProjectedMemory:
    """Keys and values for one of the attentions; ``gradient_room`` gives what their gradient is to be written to."""

    rows: Float[Tensor, "memory_tokens widths"]
    gradient_room: Callable[[], Float[Tensor, "memory_tokens widths"]]


def project_memory(memory: Float[Tensor, "memory_tokens model"], maps: Sequence[Maps]) -> list[ProjectedMemory]:
    """What each of the ``maps`` makes of the memory, in bfloat16."""
    weights = [weight for each in maps for weight in each.weights]
    biases = [bias for each in maps for bias in each.biases]
    mapped = chain_rows(memory, Maps(weights, biases))
    buffer = _GradientBuffer(mapped, [sum(len(weight) for weight in one.weights) for one in maps])
    parts = _Split.apply(mapped, buffer)  # type: ignore[no-untyped-call]
    return [ProjectedMemory(rows, partial(buffer.room, number)) for number, rows in enumerate(parts)]


@final
class _GradientBuffer:
    """The gradients of all parts side by side: there from the first that is written until they are put together."""

    def __init__(self, mapped: Tensor, widths: Sequence[int]) -> None:
        self.widths = list(widths)
        self._like = mapped.detach()
        self._rooms: dict[int, Tensor] = {}  # that nobody has asked for yet
        self._all: Tensor | None = None

    def room(self, number: int) -> Tensor:
        """Where the gradient of one part is written; a second reader's in the same pass has a place of its own."""
        if self._all is None:
            self._all = torch.empty_like(self._like)
            self._rooms = dict(enumerate(self._split()))
        room = self._rooms.pop(number, None)
        return torch.empty_like(self._split()[number]) if room is None else room

    def join(self, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients side by side, which they are already if each was written to its place."""
        everything, rooms = self._all, () if self._all is None else self._split()
        self._all = None
        if everything is not None and all(map(_is_same, gradients, rooms)):
            return everything
        return torch.cat(list(gradients), dim=1)

    def _split(self) -> Sequence[Tensor]:
        assert self._all is not None
        return torch.split(self._all, self.widths, dim=1)


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()


@final
class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        mapped: Tensor,
        buffer: _GradientBuffer,
    ) -> tuple[Tensor, ...]:
        ctx.buffer = buffer
        return torch.split(mapped, buffer.widths, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return ctx.buffer.join(gradients), None
