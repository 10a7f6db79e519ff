"""Calls of the C++ kernels (*.cpp), which are there where the package was installed with a compiler.

All that is passed is checked here, once: how tensors are laid out, and that a library is of this version.
"""

import ctypes
import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.kernels.interface import BOTH, INTERFACE, ONE, STRUCTURES

_log = logging.getLogger(__name__)

# By what torch finds that the processor can do.
_LIBRARIES: Final = {"AVX2": ["native_avx2"], "AVX512": ["native_avx512", "native_avx2"]}
# Of processors that multiply int8 in vectors of 32 bytes alone: Intel's for clients from the twelfth generation on.
_BYTES_LIBRARY: Final = "native_avxvnni"
# Instructions for low-precision products in vectors and in tiles, and the libraries for processors with all of them.
_LOW_PRECISION: Final = "avx512_vnni", "avx512_bf16"
_LOW_PRECISION_LIBRARY: Final = "native_avx512vnni"
_MATRIX_UNITS: Final = "amx_tile", "amx_bf16", "amx_int8"
_MATRIX_UNITS_LIBRARY: Final = "native_amx"
_NAMES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

# guard.h's Status: what a kernel gives back.
_DONE, _OUT_OF_MEMORY, _OUT_OF_RANGE = 0, 1, 2


def has_native(*tensors: Tensor) -> bool:
    """Whether the C++ kernels are there and can take such tensors."""
    # What is traced runs elsewhere, or later: addresses mean nothing to it.
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if traced or _library() is None:
        return False
    return all(x.device.type == "cpu" and has_kernels_of(x.dtype) for x in tensors)


def has_kernels_of(dtype: torch.dtype) -> bool:
    """Whether the C++ kernels know numbers of this type."""
    return dtype in _NAMES


def address(x: Tensor, dtype: torch.dtype, *shape: int) -> int:
    """Where a kernel finds a tensor, which must live as long as the kernel uses it.

    Raises:
        ValueError: It is of another type, shape or device than the kernel takes, or not contiguous, or its signs are
            still to be turned.
    """
    if x.dtype is not dtype or x.shape != shape or not x.is_contiguous() or not x.is_cpu or x.is_neg():
        layout = "contiguous" if x.is_contiguous() else f"strides {x.stride()}"
        raise ValueError(
            f"a C++ kernel takes a contiguous {dtype} tensor of shape {shape} on the CPU: this one is {x.dtype} "
            f"{tuple(x.shape)}, {layout}, on {x.device}{', negated lazily' if x.is_neg() else ''}"
        )
    return x.data_ptr()


def array_address(x: NDArray[Any], dtype: np.dtype[Any], *shape: int) -> int:
    """Where a kernel finds a NumPy array, as ``address`` says it of tensors.

    Raises:
        ValueError: It is of another type or shape than the kernel takes, or not contiguous.
    """
    if x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous:
        raise ValueError(f"a C++ kernel takes a contiguous array of {dtype}, {shape}: this one is {x.dtype}, {x.shape}")
    return x.ctypes.data


def call(name: str, dtype: torch.dtype | None, *arguments: int | float | ctypes.Structure | None) -> None:
    """Run the kernel of that name, for tensors of that type where there are several; other threads go on.

    Tensors are passed by their ``address``, structures by reference.

    Raises:
        MemoryError: There was too little memory for what the kernel needs beside its results.
        IndexError: A symbol, a label, a length or a slot lies outside what it is an index of.
        RuntimeError: Something else failed in the kernel.
    """
    status = _function(name, dtype)(*arguments)
    if status == _DONE:
        return
    full = _full_name(name, dtype)
    if status == _OUT_OF_MEMORY:
        raise MemoryError(f"the C++ kernel {full}: not enough memory")
    if status == _OUT_OF_RANGE:
        raise IndexError(f"the C++ kernel {full}: an index is out of range")
    raise RuntimeError(f"the C++ kernel {full} failed (status {status})")


@lru_cache
def _function(name: str, dtype: torch.dtype | None) -> Any:  # noqa: ANN401 - ctypes gives functions no type
    library = _library()
    assert library is not None
    return getattr(library, _full_name(name, dtype))


def _full_name(name: str, dtype: torch.dtype | None) -> str:
    return name if dtype is None else f"{name}_{_NAMES[dtype]}"


def kind_of_kernels() -> str | None:
    """Which of the libraries this processor runs, with the number of its interface; None where there is none."""
    library = _library()
    if library is None:
        return None
    name = Path(library._name).name.partition(".")[0]
    return f"{name.removeprefix('native_')}-{INTERFACE}"


def has_low_precision_products() -> bool:
    """Whether the processor has AVX-512's instructions for products of int8 and of bfloat16."""
    found = torch.cpu.get_capabilities()
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and all(found.get(each) for each in _LOW_PRECISION)


def has_products_of_bytes() -> bool:
    """Whether the processor has instructions for products of int8 in the vectors that torch finds it to have (AVX2)."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2" and bool(torch.cpu.get_capabilities().get("avx_vnni"))


@lru_cache
def has_matrix_units() -> bool:
    """Whether the processor multiplies in tiles (AMX), the system lets it, and the kernels for it were built."""
    return _tiled_library() is not None


def _tiled_library() -> ctypes.CDLL | None:
    found = torch.cpu.get_capabilities()
    if not (has_low_precision_products() and all(found.get(each) for each in _MATRIX_UNITS)):
        return None
    library = open_library(_MATRIX_UNITS_LIBRARY)
    return library if library is not None and library.allow_tiles() == _DONE else None


@lru_cache
def _library() -> ctypes.CDLL | None:
    # For those who want to compare, or to do without.
    if os.environ.get("TRANSDUCE_NATIVE") == "0":
        return None
    if (tiled := _tiled_library()) is not None:
        return tiled
    names = [
        *([_BYTES_LIBRARY] if has_products_of_bytes() else []),
        *([_LOW_PRECISION_LIBRARY] if has_low_precision_products() else []),
        *_LIBRARIES.get(torch.backends.cpu.get_cpu_capability(), []),
    ]
    # A compiler that does not know the processor's newest instructions leaves their library out.
    return next((library for library in map(open_library, names) if library is not None), None)


def open_library(name: str) -> ctypes.CDLL | None:
    """The kernels for one kind of processor, where they were built, and of this version."""
    found = find_spec(f"transduce.kernels.{name}")
    return None if found is None or found.origin is None else open_file(found.origin)


def open_file(path: str) -> ctypes.CDLL | None:
    """The kernels of a library, ready to be called; None where it does not fit, with a warning if it is an old one."""
    try:
        library = ctypes.CDLL(path)
    except OSError:  # built for another system, or against an OpenMP that this torch does not bring
        return None
    if not _is_of_this_version(library):
        _log.warning(
            f"{path}: the C++ kernels are of another version than the package, and are left out: all works the same, "
            f"more slowly. Install the package again (pip install .; in a clone: make install)"
        )
        return None
    for full, arguments in _signatures().items():
        getattr(library, full).argtypes = arguments
    return library


def _signatures() -> dict[str, Sequence[Any]]:
    """What each exported function takes, by its full name; each gives back a 32-bit status, as ctypes assumes."""
    both = {f"{name}_{dtype}": arguments for name, arguments in BOTH.items() for dtype in _NAMES.values()}
    return ONE | both


def _is_of_this_version(library: ctypes.CDLL) -> bool:
    """Whether it has all the functions, and means the same by their arguments."""
    if any(getattr(library, full, None) is None for full in _signatures()):
        return False
    expected = [INTERFACE, *map(ctypes.sizeof, STRUCTURES)]
    told = (ctypes.c_int64 * len(expected))()
    status = library.interface(ctypes.byref(told), ctypes.c_int64(len(expected)))
    return status == _DONE and list(told) == expected
