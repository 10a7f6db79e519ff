"""Dropout (Srivastava et al. 2014) that knows what it falls on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels import gpu
from transduce.kernels.chain import chain
from transduce.kernels.interface import Chance
from transduce.kernels.native import address, call, has_native
from transduce.kernels.seeds import advance, draw

_LEVELS: Final = 2**16
# The draws of a row are shared out: so many for each head of an attention (each expert of a mixture), for a model's
# dropouts 2^12 times as many.
_HEAD: Final = 2**20
_SITE: Final = 2**32


@final
@dataclass(frozen=True)
class Dropped:
    """What a dropout leaves out: a share of the elements of every row, which follow from the row's seed alone.

    A row is a symbol's (in an attention: a query's), so that a symbol's dropout is the same whatever shares its batch.
    Without ``seeds``, they are drawn from torch's generator. The share is to the nearest multiple of 2^-16 above zero.
    """

    share: float = 0.0
    seeds: Int[Tensor, "*rows"] | None = None

    @property
    def kept(self) -> int:
        """How many of 65,536 levels of a draw stay."""
        return _LEVELS if self.share == 0 else min(max(1, round((1 - self.share) * _LEVELS)), _LEVELS - 1)

    @property
    def scale(self) -> float:
        """What an element that stays is multiplied with, so that the expectation stays."""
        return _LEVELS / self.kept

    def at(self, site: int) -> "Dropped":
        """For one of a model's dropouts, by its number: they draw apart from each other."""
        return self if self.seeds is None else Dropped(self.share, seeds_at(self.seeds, site))

    def rows(self, *shape: int, device: torch.device) -> Int[Tensor, "*rows"] | None:
        """The seeds of so many rows; None where nothing is left out."""
        if self.share == 0:
            return None
        if self.seeds is None:
            return torch.randint(-(2**63), 2**63 - 1, shape, device=device)
        return self.seeds.expand(shape).contiguous()

    def heads(self, number: int, rows: tuple[int, int], device: torch.device) -> "Dropped":
        """For ``number`` heads of an attention over (batch, queries), whose rows these are."""
        seeds = self.rows(*rows, device=device)
        if seeds is None:
            return self
        draws = torch.arange(number, device=device).mul_(_HEAD).unsqueeze(1)
        return Dropped(self.share, advance(seeds.unsqueeze(1), draws))

    def chance(self, seeds: Int[Tensor, "*shape"] | None, rows: int) -> Chance:
        """As the C++ kernels read it; ``seeds``, one a row, None where nothing is left out, must outlive its use."""
        place = None if seeds is None else address(seeds.view(-1), torch.long, rows)
        return Chance(place, self.kept, self.scale)

    def keeps(self, seeds: Int[Tensor, "*rows"], columns: range) -> Bool[Tensor, "*rows columns"]:
        """Which of some columns of rows with these seeds stay."""
        return draw(seeds, columns) < self.kept - _LEVELS // 2


def seeds_at(seeds: Int[Tensor, "*rows"], site: int, part: int = 0) -> Int[Tensor, "*rows"]:
    """For one of a model's random decisions, by its number, and for a part of it: each draws apart from the others."""
    return advance(seeds, site * _SITE + part * _HEAD)


WHOLE: Final = Dropped()  # nothing is left out


def dropout(x: Float[Tensor, "*rows columns"], dropped: Dropped) -> Float[Tensor, "*rows columns"]:
    """Zero the elements that are left out, and scale the others so that the expectation stays."""
    seeds = dropped.rows(*x.shape[:-1], device=x.device)
    if seeds is None:
        return x
    if has_native(x) or gpu.has_triton(x, seeds):
        return chain(x.contiguous(), Dropping(dropped, seeds))
    result: Tensor = _Dropout.apply(x, seeds, dropped)  # type: ignore[no-untyped-call]
    return result


@final
@dataclass(frozen=True)
class Dropping:
    """``dropout`` in one pass as a part of a chain; ``seeds`` are those of its rows (``Dropped.rows``)."""

    dropped: Dropped
    seeds: Int[Tensor, "*rows"]

    @property
    def others(self) -> Sequence[Tensor]:
        """None: all follows from the seeds."""
        return ()

    def forward(self, x: Tensor, others: Sequence[Tensor | None]) -> tuple[Tensor, Sequence[Tensor]]:
        """Nothing is kept."""
        return self._drop(x), ()

    def backward(
        self, gradient: Tensor, x: Tensor, others: Sequence[Tensor | None], kept: Sequence[Tensor], *, want_x: bool
    ) -> tuple[Tensor | None, Sequence[Tensor]]:
        """The same again."""
        return self._drop(gradient) if want_x else None, ()

    def _drop(self, x: Tensor) -> Tensor:
        if gpu.has_triton(x):
            from transduce.kernels.gpu.drop import drop  # noqa: PLC0415 - Triton is read where it is used

            return drop(x, self.seeds, self.dropped.kept, self.dropped.scale)
        y = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns
        addresses = address(x, x.dtype, *x.shape), address(y, x.dtype, *x.shape)
        call("drop", x.dtype, *addresses, rows, columns, self.dropped.chance(self.seeds, rows))
        return y


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seeds: Tensor, dropped: Dropped) -> Tensor:  # noqa: ANN401 - torch gives it no type
        kept = dropped.keeps(seeds, range(x.shape[-1])).to(x.dtype)
        ctx.save_for_backward(kept)
        ctx.scale = dropped.scale
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None, None
