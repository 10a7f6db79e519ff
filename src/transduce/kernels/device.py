"""Memory of devices: how tensors get there, and what is said where there is too little of it."""

from typing import Final

import torch
from jaxtyping import Shaped
from torch import Tensor

# What torch's allocator of the processor's memory says, on Windows and elsewhere; what C++ says where torch only hands
# it on; what CUDA's libraries say of memory of their own.
_TOO_LITTLE: Final = ("not enough memory", "can't allocate memory", "bad_alloc", "_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device has too little memory; torch has a class of its own for some of them only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TOO_LITTLE)


def send(x: Shaped[Tensor, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """``x``, which lies in the processor's memory, on a device.

    A CUDA device fetches it by itself, in turn with its other work: only pages that the system cannot move allow that,
    and from others a copy waits until the device has done all it was given.
    """
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
