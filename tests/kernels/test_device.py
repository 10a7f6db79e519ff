import pytest
import torch

from transduce.kernels import is_out_of_memory


def test_what_torch_really_says():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 7 bytes."), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("not enough memory"), False),  # no allocator's error
    ],
)
def test_which_errors_are_of_memory(error, expected):
    assert is_out_of_memory(error) == expected
