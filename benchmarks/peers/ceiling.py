"""What a training step would be if it were its matrix products alone."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.peers.contestant import RATE, TrainStep
from transduce.data import Batch

_ATEN: Final = torch.ops.aten
# Where the two factors stand among the arguments.
_PRODUCTS: Final[Mapping[Any, int]] = {
    _ATEN.mm.default: 0,
    _ATEN.mm.out: 0,
    _ATEN.bmm.default: 0,
    _ATEN.bmm.out: 0,
    _ATEN.addmm.default: 1,
    _ATEN.baddbmm.default: 1,
}


@final
@dataclass(frozen=True)
class Layout:
    """A matrix, or one for each head of each pair, as it lies in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> "Layout":
        """The layout of a tensor."""
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device)

    def fill(self) -> Tensor:
        """Such a tensor of random numbers."""
        x = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return x.normal_()


Product = tuple[Layout, Layout]


@final
class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every matrix product that is computed under it, the backward pass's too."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        first = _PRODUCTS.get(func)
        if first is not None:
            left, right = args[first : first + 2]
            self.products[Layout.of(left), Layout.of(right)] += 1
        return func(*args, **(kwargs or {}))


def make_products(step: TrainStep, batch: Batch) -> Callable[[], None]:
    """The matrix products of one training step on a batch, and nothing else.

    Each has factors of the step's own format and layout, and memory for the result that is there: what no training that
    multiplies by PyTorch's library can be faster than.
    """
    products = record_products(step, batch)
    factors = {layout: layout.fill() for product in products for layout in product}
    calls = [(_choose(factors[left], factors[right]), count) for (left, right), count in products.items()]

    def run() -> None:
        for multiply, count in calls:
            for _ in range(count):
                multiply()

    return run


def record_products(step: TrainStep, batch: Batch) -> Counter[Product]:
    """How often a training step asks PyTorch for which products, fillers counted.

    Those of linear maps are asked for even where a kernel of ours is faster; attention's are not where it has one.
    """
    with patch("transduce.kernels.linear_maps.has_native", lambda *_: False), _Recorder() as recorder:
        step(batch, RATE)
    products: Counter[Product] = recorder.products
    return products


def _choose(left: Tensor, right: Tensor) -> Callable[[], Tensor]:
    """One product of two factors, always into the same memory."""
    multiply: Callable[..., Tensor] = torch.mm if left.dim() == 2 else torch.bmm
    return partial(multiply, left, right, out=multiply(left, right))
