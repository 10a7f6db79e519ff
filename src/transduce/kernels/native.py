"""The door to the C++ kernels (*.cpp), which are there where the package was installed with a compiler at hand."""

import ctypes
import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Final, final

import torch
from torch import Tensor

# By what torch finds that the processor can do.
_LIBRARIES: Final = {"AVX2": "native_avx2", "AVX512": "native_avx512"}
# Instructions that multiply narrow numbers, and the library for processors with all of them.
_NARROW: Final = "avx512_vnni", "avx512_bf16"
_NARROW_LIBRARY: Final = "native_avx512vnni"
_NAMES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_Argument = Tensor | int | float | bytes | ctypes.Structure | None


@final
class Chance(ctypes.Structure):
    """Which elements stay, and what they are multiplied with; ``seeds`` is where those of the rows lie."""

    _fields_ = (("seeds", ctypes.c_void_p), ("kept", ctypes.c_int32), ("scale", ctypes.c_float))


@final
class Sequences(ctypes.Structure):
    """The sizes of an attention over sequences laid end to end; strides are of rows, in elements."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("d_k", ctypes.c_int64),
        ("d_v", ctypes.c_int64),
        ("queries", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("query_stride", ctypes.c_int64),
        ("key_stride", ctypes.c_int64),
        ("value_stride", ctypes.c_int64),
        ("output_stride", ctypes.c_int64),
        ("causal", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


def has_native(*tensors: Tensor) -> bool:
    """Whether the C++ kernels are there and can take such tensors."""
    # What is traced runs elsewhere, or later: addresses mean nothing to it.
    if torch.compiler.is_compiling() or _library() is None:
        return False
    return all(x.device.type == "cpu" and x.dtype in _NAMES for x in tensors)


def call(name: str, dtype: torch.dtype | None, *arguments: _Argument) -> None:
    """Run the kernel of that name, for narrow tensors of that type where there are several; other threads go on.

    Tensors are passed by where they lie, and so are bytes, which a kernel reads as a structure.
    """
    library = _library()
    assert library is not None
    getattr(library, name if dtype is None else f"{name}_{_NAMES[dtype]}")(*map(_pass, arguments))


def _pass(argument: _Argument) -> object:
    match argument:
        case Tensor():
            return ctypes.c_void_p(argument.data_ptr())
        case int():
            return ctypes.c_int64(argument)
        case float():
            return ctypes.c_float(argument)
        case None | bytes():
            return argument
        case _:
            return ctypes.byref(argument)


def multiplies_narrow_numbers() -> bool:
    """Whether the processor has AVX-512's instructions for products of int8 and of bfloat16."""
    found = torch.cpu.get_capabilities()
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and all(found.get(each) for each in _NARROW)


@lru_cache
def _library() -> ctypes.CDLL | None:
    # For those who want to compare, or to do without.
    if os.environ.get("TRANSDUCE_NATIVE") == "0":
        return None
    name = _LIBRARIES.get(torch.backends.cpu.get_cpu_capability())
    if multiplies_narrow_numbers():
        name = _NARROW_LIBRARY
    return None if name is None else open_library(name)


def open_library(name: str) -> ctypes.CDLL | None:
    """The kernels for one kind of processor, where they were built."""
    found = find_spec(f"transduce.kernels.{name}")
    if found is None or found.origin is None:
        return None
    try:
        return ctypes.CDLL(found.origin)
    except OSError:  # built for another system, or against an OpenMP that this torch does not bring
        return None
