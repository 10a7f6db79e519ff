"""Kernels that are written twice are tested twice: in PyTorch's operations, and in C++ where that was built."""

import sys

import pytest

_CAPABILITIES = {"AVX2": ["plain", "native_avx2"], "AVX512": ["plain", "native_avx2", "native_avx512"]}
_WAYS = ["plain", "native_avx2", "native_avx512", "native_avx512vnni"]


@pytest.fixture(params=_WAYS)
def way(request, monkeypatch):
    """Which of them runs."""
    import torch  # many tests do without

    from transduce.kernels import native

    able = list(_CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), ["plain"]))
    if native.has_low_precision_products():
        able.append("native_avx512vnni")
    if request.param not in able:
        pytest.skip("this processor cannot run it")
    library = None if request.param == "plain" else native.open_library(request.param)
    if request.param != "plain" and library is None:
        pytest.skip("installed without a C++ compiler")
    monkeypatch.setattr(native, "_library", lambda: library)
    return request.param


@pytest.fixture
def built():
    """For a test that goes once through the kernels that this processor takes."""
    from transduce.kernels import native

    if native._library() is None:
        pytest.skip("installed without a C++ compiler")


@pytest.fixture
def by_vectors(way, monkeypatch):
    """Linear maps in C++ wherever that was built, were PyTorch's products faster or not."""
    monkeypatch.setattr(sys.modules["transduce.kernels.linear_maps"], "_multiplies_by_vectors", lambda: way != "plain")
