"""Kernels in Triton's language for CUDA devices: what the C++ kernels are on a processor.

PyTorch's builds for CUDA bring Triton along. A module here is read when a tensor on such a device first needs it.
"""

from functools import lru_cache
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor

_OLDEST: Final = (8, 0)  # compute capability with bfloat16 products (Ampere)


def has_triton(*tensors: Tensor) -> bool:
    """Whether the kernels of this room can work on these: all are on one CUDA device that they know."""
    device = tensors[0].device
    return device.type == "cuda" and _knows(device) and all(each.device == device for each in tensors[1:])


@lru_cache
def _knows(device: torch.device) -> bool:
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(device) >= _OLDEST
