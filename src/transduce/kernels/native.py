"""Calls of the C++ kernels (*.cpp), which are there where the package was installed with a compiler.

All that is passed is checked here, once: what a kernel is called with, how tensors are laid out, and that a library
is of this version.
"""

import ctypes
import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.config.model import Activation

_log = logging.getLogger(__name__)

# By what torch finds that the processor can do.
_LIBRARIES: Final = {"AVX2": "native_avx2", "AVX512": "native_avx512"}
# Instructions for low-precision products in vectors and in tiles, and the libraries for processors with all of them.
_LOW_PRECISION: Final = "avx512_vnni", "avx512_bf16"
_LOW_PRECISION_LIBRARY: Final = "native_avx512vnni"
_MATRIX_UNITS: Final = "amx_tile", "amx_bf16", "amx_int8"
_MATRIX_UNITS_LIBRARY: Final = "native_amx"
_NAMES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

# Counts up with every change of what follows, or of what it means; interface.cpp has the same number.
_INTERFACE: Final = 8
_WHOLE, _REAL, _DOUBLE, _ARRAY = ctypes.c_int64, ctypes.c_float, ctypes.c_double, ctypes.c_void_p


@final
class Chance(ctypes.Structure):
    """Which elements stay, and what they are multiplied with; ``seeds`` is where those of the rows lie."""

    _fields_ = (("seeds", _ARRAY), ("kept", ctypes.c_int32), ("scale", _REAL))


@final
class Sequences(ctypes.Structure):
    """The sizes of an attention over a ragged batch; strides are of rows, in elements."""

    _fields_ = (
        *((name, _WHOLE) for name in ("batch", "heads", "d_k", "d_v")),
        *((name, _ARRAY) for name in ("queries", "keys")),
        *((name, _WHOLE) for name in ("query_stride", "key_stride", "value_stride", "output_stride")),
        ("causal", ctypes.c_int32),
        ("scale", _REAL),
    )


MOST_MAPS: Final = 3  # that the kernels of linear maps take at once
_ARRAYS: Final = _ARRAY * MOST_MAPS


@final
class MapsAddress(ctypes.Structure):
    """Linear maps of training: where weights, biases and the gradients of both lie, and their sizes."""

    _fields_ = (
        *((name, _ARRAYS) for name in ("weights", "biases", "of_weights", "of_biases")),
        ("outputs", _WHOLE * MOST_MAPS),
        ("inputs", _WHOLE),
    )


@final
class MatrixAddress(ctypes.Structure):
    """A prepacked matrix."""

    _fields_ = (
        *((name, _ARRAY) for name in ("panels", "scales", "sums", "bias")),
        *((name, _WHOLE) for name in ("outputs", "inputs", "format")),
    )


@final
class NormAddress(ctypes.Structure):
    """What layer normalization multiplies with, and adds."""

    _fields_ = (("gain", _ARRAY), ("bias", _ARRAY))


@final
class LayerAddress(ctypes.Structure):
    """A layer of a stack; an encoder's has no cross-attention."""

    _fields_ = (
        *((name, NormAddress) for name in ("self_norm", "cross_norm", "feed_norm")),
        *(
            (name, MatrixAddress)
            for name in ("input", "output", "query", "key_value", "cross_output", "inner", "outer")
        ),
    )


@final
class StackAddress(ctypes.Structure):
    """An encoder or decoder."""

    _fields_ = (
        ("layers", _ARRAY),
        *((name, _WHOLE) for name in ("count", "vocabulary", "d_model", "heads", "d_k", "d_v", "d_ff")),
        ("embedding", _ARRAY),
        *((name, NormAddress) for name in ("first", "last")),
        *((name, _REAL) for name in ("embedding_scale", "epsilon", "scale")),
        *((name, ctypes.c_int32) for name in ("pre", "activation", "gated")),
    )


@final
class PastAddress(ctypes.Structure):
    """The keys and values of what a decoder has read."""

    _fields_ = (*((name, _ARRAY) for name in ("keys", "values")), *((name, _WHOLE) for name in ("slots", "capacity")))


@final
class MemoryAddress(ctypes.Structure):
    """The keys and values of a decoder's sources."""

    _fields_ = (
        *((name, _ARRAY) for name in ("keys", "values", "lengths")),
        *((name, _WHOLE) for name in ("slots", "columns")),
    )


@final
class StepAddress(ctypes.Structure):
    """A step of a decoder for all its rows; ``past`` and ``memory`` are where such structures lie."""

    _fields_ = (
        *((name, _WHOLE) for name in ("sentences", "beam")),
        ("positions", _ARRAY),
        ("longest", _WHOLE),
        *((name, _ARRAY) for name in ("tokens", "lengths", "slots", "ancestors", "past", "memory", "weights")),
        ("weight_columns", _WHOLE),
    )


@final
class ListsAddress(ctypes.Structure):
    """What each sentence may write, and in which columns of the scores."""

    _fields_ = (
        *((name, _ARRAY) for name in ("columns", "symbols", "lengths")),
        *((name, _WHOLE) for name in ("longest", "vocabulary")),
    )


@final
class RankingAddress(ctypes.Structure):
    """What ``rank`` reads, and where it leaves the best continuations."""

    _fields_ = (
        *((name, _ARRAY) for name in ("logits", "so_far")),
        *((name, _WHOLE) for name in ("sentences", "beam", "width")),
        ("banned", _ARRAY),
        ("bans", _WHOLE),
        ("must_end", _ARRAY),
        *((name, _WHOLE) for name in ("end", "count")),
        *((name, _ARRAY) for name in ("which", "first", "choices")),
        ("kinds", _WHOLE),
        *((name, _ARRAY) for name in ("values", "indices")),
    )


@final
class Searched(ctypes.Structure):
    """A sentence of a search: what it was asked for, and how far it is."""

    _fields_ = (
        *((name, _WHOLE) for name in ("limit", "min_length", "n_best", "full_beam", "penalty")),
        ("alpha", _DOUBLE),
        *((name, _WHOLE) for name in ("length", "ended")),
    )


@final
class Ended(ctypes.Structure):
    """An output: how good it is, and where the hypothesis is that it ends."""

    _fields_ = (
        *((name, _DOUBLE) for name in ("score", "log_probability")),
        *((name, _WHOLE) for name in ("length", "place")),
    )


@final
class Written(ctypes.Structure):
    """The symbol that a hypothesis wrote in a round, and which hypothesis it continued."""

    _fields_ = (("place", ctypes.c_int32), ("symbol", ctypes.c_int32))


@final
class RoundAddress(ctypes.Structure):
    """What ``advance_beams`` reads and writes, and what it says of the round."""

    _fields_ = (
        ("logits", _ARRAY),
        ("width", _WHOLE),
        *((name, _ARRAY) for name in ("searched", "so_far", "ended", "written", "newest", "rows", "certain")),
        *((name, _WHOLE) for name in ("sentences", "beam", "most", "columns")),
        ("banned", _ARRAY),
        *((name, _WHOLE) for name in ("bans", "end", "done", "moved", "not_a_number")),
    )


@final
class AddNormAddress(ctypes.Structure):
    """What ``add_norm`` reads and writes."""

    _fields_ = (
        *((name, _ARRAY) for name in ("x", "out", "sum", "y", "wide", "statistics", "gain", "bias")),
        *((name, _WHOLE) for name in ("rows", "d")),
        ("epsilon", _REAL),
    )


@final
class AddNormBackwardAddress(ctypes.Structure):
    """What ``add_norm_backward`` reads and writes."""

    _fields_ = (
        *((name, _ARRAY) for name in ("sum", "statistics", "gain", "of_sum", "of_y", "of_wide")),
        *((name, _ARRAY) for name in ("of_x", "of_out", "of_gain", "of_bias")),
        *((name, _WHOLE) for name in ("rows", "d")),
    )


# In interface.cpp's order.
_STRUCTURES: Final[tuple[type[ctypes.Structure], ...]] = (
    *(Chance, Sequences, MapsAddress, MatrixAddress, NormAddress, LayerAddress, StackAddress),
    *(PastAddress, MemoryAddress, StepAddress, ListsAddress, RankingAddress),
    *(Searched, Ended, Written, RoundAddress, AddNormAddress, AddNormBackwardAddress),
)


def _by_reference(structure: type[ctypes.Structure]) -> Any:  # noqa: ANN401 - ctypes makes a type of its own for each
    return ctypes.POINTER(structure)


_CHANCE, _SEQUENCES, _MAPS = map(_by_reference, (Chance, Sequences, MapsAddress))
_MATRIX, _STACK, _STEP, _LISTS = map(_by_reference, (MatrixAddress, StackAddress, StepAddress, ListsAddress))
_RANKING, _ROUND = map(_by_reference, (RankingAddress, RoundAddress))
_ADD_NORM, _BACKWARD = map(_by_reference, (AddNormAddress, AddNormBackwardAddress))

# What every kernel is called with; those of _BOTH are there for float32 and for bfloat16.
_ONE: Final[dict[str, Sequence[Any]]] = {
    "interface": (_ARRAY, _WHOLE),
    "multiply": (_ARRAY, _MATRIX, _ARRAY, _WHOLE, _WHOLE),
    "multiply_by_tiles": (_ARRAY, _MATRIX, _ARRAY, *[_WHOLE] * 3),
    "map_rows": (_ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE),
    "map_rows_backward": (_ARRAY, _ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE, _WHOLE),
    "allow_tiles": (),
    "map_rows_by_tiles": (_ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE),
    "map_rows_backward_by_tiles": (_ARRAY, _ARRAY, _MAPS, _ARRAY, _WHOLE, _WHOLE, _WHOLE),
    "use_cores": (_WHOLE,),
    "rank": (_RANKING, _LISTS),
    "advance_beams": (_ROUND, _LISTS),
    "activate": (_ARRAY, _ARRAY, *[_WHOLE] * 4),
    "activate_backward": (*[_ARRAY] * 3, *[_WHOLE] * 4),
    "encode": (_STACK, _ARRAY, _WHOLE, _ARRAY, _ARRAY, _WHOLE, _ARRAY),
}
_BOTH: Final[dict[str, Sequence[Any]]] = {
    "attention": (*[_ARRAY] * 5, _SEQUENCES, _CHANCE),
    "attention_backward": (*[_ARRAY] * 8, _SEQUENCES, _CHANCE),
    "add_norm": (_ADD_NORM, _CHANCE),
    "add_norm_backward": (_BACKWARD, _CHANCE),
    "drop": (_ARRAY, _ARRAY, _WHOLE, _WHOLE, _CHANCE),
    "cross_entropy": (_ARRAY, _ARRAY, _ARRAY, _ARRAY, _WHOLE, _WHOLE, _REAL),
    "remember": (_STACK, _ARRAY, _ARRAY, _WHOLE, _WHOLE, _ARRAY, _ARRAY),
    "step": (_STACK, _MATRIX, _STEP, _ARRAY),
}
# activation.h's Activation; None: what is left as it is.
ACTIVATIONS: Final[dict[Activation | None, int]] = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
# guard.h's Status: what a kernel gives back.
_DONE, _OUT_OF_MEMORY, _OUT_OF_RANGE = 0, 1, 2


def has_native(*tensors: Tensor) -> bool:
    """Whether the C++ kernels are there and can take such tensors."""
    # What is traced runs elsewhere, or later: addresses mean nothing to it.
    if torch.compiler.is_compiling() or _library() is None:
        return False
    return all(x.device.type == "cpu" and x.dtype in _NAMES for x in tensors)


def address(x: Tensor, dtype: torch.dtype, *shape: int) -> int:
    """Where a kernel finds a tensor, which must live as long as the kernel uses it.

    Raises:
        ValueError: It is of another type, shape or device than the kernel takes, or not contiguous.
    """
    if x.dtype is not dtype or x.shape != shape or not x.is_contiguous() or not x.is_cpu:
        layout = "contiguous" if x.is_contiguous() else f"strides {x.stride()}"
        raise ValueError(
            f"a C++ kernel takes a contiguous {dtype} tensor of shape {shape} on the CPU: this one is {x.dtype} "
            f"{tuple(x.shape)}, {layout}, on {x.device}"
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
    return f"{name.removeprefix('native_')}-{_INTERFACE}"


def has_low_precision_products() -> bool:
    """Whether the processor has AVX-512's instructions for products of int8 and of bfloat16."""
    found = torch.cpu.get_capabilities()
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and all(found.get(each) for each in _LOW_PRECISION)


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
    name = _LIBRARIES.get(torch.backends.cpu.get_cpu_capability())
    if has_low_precision_products():
        name = _LOW_PRECISION_LIBRARY
    return None if name is None else open_library(name)


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
    both = {f"{name}_{dtype}": arguments for name, arguments in _BOTH.items() for dtype in _NAMES.values()}
    return _ONE | both


def _is_of_this_version(library: ctypes.CDLL) -> bool:
    """Whether it has all the functions, and means the same by their arguments."""
    if any(getattr(library, full, None) is None for full in _signatures()):
        return False
    expected = [_INTERFACE, *map(ctypes.sizeof, _STRUCTURES)]
    told = (ctypes.c_int64 * len(expected))()
    status = library.interface(ctypes.byref(told), ctypes.c_int64(len(expected)))
    return status == _DONE and list(told) == expected
