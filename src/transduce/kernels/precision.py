"""Which number format multiplies fast on this hardware."""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from transduce.config import Precision, TrainingPrecision
from transduce.kernels.native import has_native
from transduce.kernels.products import Format, linear, pack

_FAST_ENOUGH: Final = 1.5  # a narrower format must win by this much to be worth its rounding


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
    chosen: Format = "float32"
    formats: tuple[Format, ...] = ("float32", "bfloat16", "int8") if has_native(torch.empty(0)) else (chosen,)
    seconds = {each: _packed_seconds(each) for each in formats}
    for each in formats:
        if seconds[chosen] > _FAST_ENOUGH * seconds[each]:
            chosen = each
    return chosen


def _packed_seconds(format_: Format) -> float:
    matrix, rows = pack(torch.ones(512, 512), None, format_), torch.ones(64, 512)
    return _fastest(lambda: linear(rows, matrix))


@lru_cache
def _multiplies_bfloat16_fast(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # Measured, not looked up: there is no public name for every unit that can (AMX, AVX512-BF16, SVE). Hardware that
    # multiplies bfloat16 does so several times as fast; hardware that emulates it is slower.
    return _seconds(torch.float32) > _FAST_ENOUGH * _seconds(torch.bfloat16)


def _seconds(dtype: torch.dtype) -> float:
    left, right = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    return _fastest(lambda: left @ right)


def _fastest(product: Callable[[], Tensor]) -> float:
    """The seconds of the fastest of a few matrix products of a size that models use."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    return min(times)
