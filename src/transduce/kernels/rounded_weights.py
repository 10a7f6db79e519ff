"""Weights as products read them, cast all at once: on a device, each cast is a kernel that is launched."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, final

import torch
from torch import Tensor

_Place = tuple[int, torch.Size]


@final
class RoundedWeights:
    """A model's weights in the type of products, those that are multiplied together one behind the other.

    What is joined with what is seen when they are first asked for, and kept from then on.
    """

    def __init__(self, weights: Sequence[Tensor], dtype: torch.dtype) -> None:
        self._dtype, self._known = dtype, set(map(_place, weights))
        self._joined: dict[tuple[_Place, ...], Tensor] = {}
        self._parts: list[Tensor] = []
        self._sources: list[Tensor] = []

    @contextmanager
    def used(self) -> Iterator[None]:
        """What is joined in here is read from here, cast from the weights as they are now.

        In a CUDA graph the casts are recorded, too: every replay begins with the weights as they are then.
        """
        if self._parts:
            torch._foreach_copy_(self._parts, self._sources)
        token = _USED.set(self)
        try:
            yield
        finally:
            _USED.reset(token)

    def join(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor | None:
        """The rows of one behind those of the other; None where these are none of the weights, or of another type."""
        places = tuple(map(_place, tensors))
        if dtype != self._dtype or not self._known.issuperset(places):
            return None
        if places not in self._joined:
            if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
                return None  # what a graph has made, it makes anew
            sources = [each.detach() for each in tensors]
            self._joined[places] = joined = torch.cat(sources).to(dtype)
            self._parts += torch.split(joined, [len(each) for each in sources])
            self._sources += sources
        return self._joined[places]


def join_rounded(tensors: Sequence[Tensor | None], dtype: torch.dtype) -> Tensor:
    """In a type of low precision, the rows of one behind those of the other."""
    known, weights = [each for each in tensors if each is not None], _USED.get()
    joined = None if weights is None else weights.join(known, dtype)
    return _join(known, dtype) if joined is None else joined


def _place(x: Tensor) -> _Place:
    return x.data_ptr(), x.shape


def _join(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return (tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))).to(dtype)


_USED: Final[ContextVar[RoundedWeights | None]] = ContextVar("rounded weights", default=None)
