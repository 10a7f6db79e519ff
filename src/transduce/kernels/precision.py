"""Which number format multiplies fast on this hardware."""

import math
import time
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from typing import Final, TypeVar

import torch

from transduce.config import Precision, TrainingPrecision
from transduce.kernels.native import has_native
from transduce.kernels.products import Format, linear, pack

K = TypeVar("K", bound=Hashable)

_FAST_ENOUGH: Final = 1.25  # a narrower format must win by this much to be worth its rounding
_ROUNDS: Final = 20


def resolve_format(precision: Precision, *, packed: bool, device: torch.device) -> Format:
    """The format that a setting means for a model that runs on a device, packed or in PyTorch's operations.

    ``auto`` is the widest one that no narrower one beats by far; int8 is among them where its C++ kernel is.
    """
    if precision != "auto":
        return precision
    if packed:
        return _fastest_packed()
    return "bfloat16" if resolve_precision("auto", device) == torch.bfloat16 else "float32"


def resolve_precision(precision: TrainingPrecision, device: torch.device) -> torch.dtype:
    """The format that a setting means on a device: ``auto`` is bfloat16 where the hardware multiplies it fast."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "auto":
            return torch.bfloat16 if _multiplies_bfloat16_fast(device) else torch.float32


@lru_cache
def _fastest_packed() -> Format:
    if not has_native(torch.empty(0)):
        return "float32"
    rows = torch.ones(64, 512)
    formats: tuple[Format, ...] = ("float32", "bfloat16", "int8")
    return widest({each: partial(linear, rows, pack(torch.ones(512, 512), None, each)) for each in formats})


@lru_cache
def _multiplies_bfloat16_fast(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # Measured, not looked up: there is no public name for every unit that can (AMX, AVX512-BF16, SVE). Hardware that
    # multiplies bfloat16 does so several times as fast; hardware that emulates it is slower.
    squares = (torch.ones(512, 512, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    return widest({square.dtype: partial(torch.mm, square, square) for square in squares}) == torch.bfloat16


def widest(products: Mapping[K, Callable[[], object]]) -> K:
    """The first format, or a later one where that is so much faster that it is worth its rounding.

    The fastest of many calls counts, and the formats take turns: whatever else the machine does meets all alike.
    """
    seconds = dict.fromkeys(products, math.inf)
    for _ in range(_ROUNDS):
        for each, product in products.items():
            start = time.perf_counter()
            product()
            seconds[each] = min(seconds[each], time.perf_counter() - start)
    chosen, *narrower = products
    for each in narrower:
        if seconds[chosen] > _FAST_ENOUGH * seconds[each]:
            chosen = each
    return chosen
