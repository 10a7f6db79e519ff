"""Kernels that are written twice are tested twice: in PyTorch's operations, and in C++ where that was built."""

import sys

import pytest

_CAPABILITIES = {"AVX2": ["plain", "native_avx2"], "AVX512": ["plain", "native_avx2", "native_avx512"]}
WAYS = ["plain", "native_avx2", "native_avxvnni", "native_avx512", "native_avx512vnni", "native_amx"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Which of them runs."""
    import torch  # many tests do without

    from transduce.kernels import native

    able = list(_CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), ["plain"]))
    if torch.cpu.get_capabilities().get("avx_vnni"):
        able.append("native_avxvnni")
    if native.has_low_precision_products():
        able.append("native_avx512vnni")
    if native.has_matrix_units():
        able.append("native_amx")
    if request.param not in able:
        pytest.skip("this processor cannot run it")
    library = None if request.param == "plain" else native.open_library(request.param)
    if request.param != "plain" and library is None:
        pytest.skip("installed without a C++ compiler")
    monkeypatch.setattr(native, "_library", lambda: library)
    native._function.cache_clear()  # each kernel of the kind before, which would stay beside others of this one
    yield request.param
    native._function.cache_clear()


@pytest.fixture
def built():
    """For a test that goes once through the kernels that this processor takes."""
    from transduce.kernels import native

    if native._library() is None:
        pytest.skip("installed without a C++ compiler")


@pytest.fixture(params=["vectors", "tiles"])
def own_maps(request, way, monkeypatch):
    """Linear maps in C++ wherever that was built, even where PyTorch's are faster; tiles are emulated without AMX."""
    unit = None if way == "plain" else request.param
    if way == "plain" and request.param == "tiles":
        pytest.skip("PyTorch's products are tested once")
    monkeypatch.setattr(sys.modules["transduce.kernels.linear_maps"], "_unit", lambda: unit)
    return unit


@pytest.fixture(params=["vectors", "tiles"])
def own_products(request, way, monkeypatch):
    """Products by prepacked matrices as the kernels choose, or all in tiles, which are emulated without AMX."""
    if request.param == "vectors":
        return way
    if way == "plain":
        pytest.skip("PyTorch's products are tested once")
    monkeypatch.setattr(sys.modules["transduce.kernels.products"], "call", _in_tiles)
    return way


def _in_tiles(name, *arguments):
    from transduce.kernels.native import call

    call(f"{name}_by_tiles", *arguments, 0)
