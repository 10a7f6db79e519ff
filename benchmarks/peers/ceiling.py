"""What a training step would take if it were its matrix products alone."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.peers.contestant import TrainStep
from benchmarks.peers.race import RATE, synchronize
from transduce.data import Batch

_REPEATS: Final = 5
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


def share_of_ceiling(step: TrainStep, batch: Batch) -> float:
    """The time of a step's matrix products, each alone and into memory that is there, over the time of the step.

    Both by this process's threads, in the step's own number format and shapes.
    """
    products: float = sum(count * _time_product(*product) for product, count in record_products(step, batch).items())
    return products / _time(lambda: step(batch, RATE))


def record_products(step: TrainStep, batch: Batch) -> Counter[Product]:
    """How often one of our steps computes which products, attention's as products of padded matrices; fillers count."""
    with patch("transduce.kernels.packed.has_native", lambda *_: False), _Recorder() as recorder:
        step(batch, RATE)
    products: Counter[Product] = recorder.products
    return products


def _time_product(left: Layout, right: Layout) -> float:
    a, b = left.fill(), right.fill()
    multiply: Callable[..., Tensor] = torch.mm if a.dim() == 2 else torch.bmm
    out = multiply(a, b)
    return _time(lambda: multiply(a, b, out=out))


def _time(run: Callable[[], object]) -> float:
    """Seconds, the median of a few."""
    found = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found)
