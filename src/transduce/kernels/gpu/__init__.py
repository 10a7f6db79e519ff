"""Kernels in Triton's language for CUDA devices: what the C++ kernels are on a processor.

PyTorch's builds for CUDA bring Triton along. A module here is read when a tensor on such a device first needs it.
"""

import logging
from functools import lru_cache
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor

_log = logging.getLogger(__name__)

_OLDEST: Final = (8, 0)  # compute capability with bfloat16 products (Ampere)


def has_triton(*tensors: Tensor) -> bool:
    """Whether the kernels of this room can work on these: all are on one CUDA device, where they have been tried out.

    Triton launches on the device that torch calls the current one.
    """
    device = tensors[0].device
    return (
        device.type == "cuda"
        and _knows(device)
        and device.index == torch.cuda.current_device()
        and all(each.device == device for each in tensors[1:])
    )


@lru_cache
def _knows(device: torch.device) -> bool:
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    if torch.cuda.get_device_capability(device) < _OLDEST:
        return False
    try:
        with torch.cuda.device(device):
            _try_out(device)
    except Exception as error:  # of whatever kind it is: all can be done without these kernels
        _log.warning(
            f"PyTorch's own kernels are used on {device}, which take about twice as long in training: Triton cannot "
            f"compile ours ({error}); it needs a C compiler (gcc) and Python's headers (python3-dev)"
        )
        return False
    return True


def _try_out(device: torch.device) -> None:
    """Run the smallest of the kernels.

    Raises:
        Exception: As Triton has them: there is no compiler, no header, or not this device.
    """
    from transduce.kernels.gpu.drop import drop  # noqa: PLC0415 - Triton is read where it is used

    kept = drop(torch.ones(1, 4, device=device), torch.zeros(1, dtype=torch.int64, device=device), 2**16, 1.0)
    if not bool(kept.eq(1).all()):
        raise RuntimeError("a kernel that was tried out computes something else")
