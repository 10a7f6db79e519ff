"""Operations that are differentiated by hand, one after the other as one node of autograd's graph.

On a CPU a node takes about 100 microseconds, forwards and backwards together, however few numbers it has to do with:
in small batches of a small model, as long as the arithmetic.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@runtime_checkable
class Link(Protocol):
    """An operation on rows. The others are what it reads beside them, and what has a gradient, too."""

    @property
    def others(self) -> Sequence[Tensor | None]:
        """Parameters, as a rule."""
        ...

    def forward(self, x: Tensor, others: Sequence[Tensor | None]) -> tuple[Tensor, Sequence[Tensor]]:
        """The result, and what the backward pass needs beside the rows and the others."""
        ...

    def backward(
        self, gradient: Tensor, x: Tensor, others: Sequence[Tensor | None], kept: Sequence[Tensor], *, want_x: bool
    ) -> tuple[Tensor | None, Sequence[Tensor | None]]:
        """The gradients of the rows, where these are wanted, and of the others."""
        ...


def chain(x: Tensor, *links: Link) -> Tensor:
    """What the links make of rows, one after the other."""
    others = [other for link in links for other in link.others]
    result: Tensor = _Chain.apply(x, links, *others)  # type: ignore[no-untyped-call]
    return result


@final
class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        links: Sequence[Link],
        *others: Tensor | None,
    ) -> Tensor:
        inputs, counts, start = [], [], 0
        kept: list[Tensor] = []
        for link in links:
            end = start + len(link.others)
            inputs.append(x)
            x, more = link.forward(x, others[start:end])
            kept += more
            counts.append(len(more))
            start = end
        ctx.save_for_backward(*inputs, *kept, *others)
        ctx.links, ctx.counts = links, counts
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        links: Sequence[Link] = ctx.links
        saved, count, ends = ctx.saved_tensors, len(links), [*accumulate(ctx.counts, initial=len(links))]
        inputs, others = saved[:count], saved[ends[-1] :]
        of_rows: Tensor | None = gradient.contiguous()
        gradients: list[Tensor | None] = []
        end = len(others)
        for number in reversed(range(count)):
            link, start = links[number], end - len(links[number].others)
            assert of_rows is not None
            of_rows, of_others = link.backward(
                *(of_rows, inputs[number], others[start:end], saved[ends[number] : ends[number + 1]]),
                want_x=number > 0 or ctx.needs_input_grad[0],
            )
            gradients[:0] = of_others
            end = start
        return of_rows, None, *gradients
