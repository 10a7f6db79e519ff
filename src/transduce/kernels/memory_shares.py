"""What several attentions read of one memory, made by one product: that of all their maps side by side.

On a CUDA device one large product takes less time than several, the memory is rounded once, and its gradient is summed
up within a product, in float32, where autograd would add those of the layers one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.linear_maps import Maps, chain_rows


@final
@dataclass(frozen=True)
class MemoryShare:
    """Keys and values for one of the attentions; ``gradient`` gives what their gradient is to be written to."""

    rows: BFloat16[Tensor, "memory_tokens widths"]
    gradient: Callable[[], BFloat16[Tensor, "memory_tokens widths"]]


def share_memory(memory: Float[Tensor, "memory_tokens model"], maps: Sequence[Maps]) -> list[MemoryShare]:
    """What each of the ``maps`` makes of the memory, in bfloat16."""
    weights = [weight for each in maps for weight in each.weights]
    biases = [bias for each in maps for bias in each.biases]
    mapped = chain_rows(memory, Maps(weights, biases))
    room = _Room([sum(len(weight) for weight in one.weights) for one in maps])
    shares = _Shares.apply(mapped, room)  # type: ignore[no-untyped-call]
    return [MemoryShare(rows, partial(room.share, number)) for number, rows in enumerate(shares)]


@final
class _Room:
    """The gradients of all shares side by side: there from the first that asks until they are put together."""

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = list(widths)
        self.like: Tensor | None = None
        self._shares: Sequence[Tensor] = ()
        self._all: Tensor | None = None

    def share(self, number: int) -> Tensor:
        """Where the gradient of one share is written."""
        if self._all is None:
            assert self.like is not None
            self._all = torch.empty_like(self.like)
            self._shares = torch.split(self._all, self.widths, dim=1)
        return self._shares[number]

    def join(self, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients side by side, which they are already if each was written to its place."""
        everything, shares = self._all, self._shares
        self._all, self._shares = None, ()
        if everything is not None and all(map(_is_same, gradients, shares)):
            return everything
        return torch.cat(list(gradients), dim=1)


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()


@final
class _Shares(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        mapped: Tensor,
        room: _Room,
    ) -> tuple[Tensor, ...]:
        room.like, ctx.room = mapped.detach(), room
        return torch.split(mapped, room.widths, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return ctx.room.join(gradients), None
