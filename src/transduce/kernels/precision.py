"""Which number format multiplies fast on this hardware."""

import time
from functools import lru_cache
from typing import Final

import torch

from transduce.config import Precision

_FAST_ENOUGH: Final = 1.5  # bfloat16 must win by this much to be worth its rounding


def resolve_precision(precision: Precision, device: torch.device) -> torch.dtype:
    """The format that a setting means on a device: ``auto`` is bfloat16 where the hardware multiplies it fast."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "auto":
            return torch.bfloat16 if _multiplies_bfloat16_fast(device) else torch.float32


@lru_cache
def _multiplies_bfloat16_fast(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # Measured, not looked up: there is no public name for every unit that can (AMX, AVX512-BF16, SVE). Hardware that
    # multiplies bfloat16 does so several times as fast; hardware that emulates it is slower.
    return _seconds(torch.float32) > _FAST_ENOUGH * _seconds(torch.bfloat16)


def _seconds(dtype: torch.dtype) -> float:
    """The fastest of a few matrix products of a size that models use."""
    left, right = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return min(times)
