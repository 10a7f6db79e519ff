"""How many threads a row of so many columns is worth, and how many programs a device runs at once."""

from functools import lru_cache
from typing import Final

import torch

_QUADS_A_WARP: Final = 64  # two quads a thread
_MOST_WARPS: Final = 8
_PROGRAMS: Final = 8  # a multiprocessor, of those that go through many rows each


def quads_of(columns: int) -> int:
    """Fours of columns in a row, up to a power of two as Triton's blocks are."""
    return power_of_two(-(-columns // 4))


def power_of_two(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, number - 1).bit_length()


def warps_of(quads: int) -> int:
    """For a program that holds a row."""
    return min(max(1, quads // _QUADS_A_WARP), _MOST_WARPS)


def programs_for(rows: int, device: torch.device) -> int:
    """For rows that programs share out among them; each then adds up what is summed over rows."""
    return min(rows, _PROGRAMS * _multiprocessors(device))


@lru_cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
