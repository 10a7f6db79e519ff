"""What torch, C++ and Python say where there is too little memory."""

from typing import Final

import torch

# What torch's allocator of the processor's memory says, on Windows and elsewhere; what C++ says where torch only hands
# it on; what CUDA's libraries say of memory of their own.
_TOO_LITTLE: Final = ("not enough memory", "can't allocate memory", "bad_alloc", "_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device has too little memory; torch has a class of its own for some of them only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TOO_LITTLE)
