import time

import pytest
import torch

from transduce.config import BadInputError
from transduce.kernels import has_native, native, precision, resolve_format, resolve_precision

CPU = torch.device("cpu")
X86 = {"avx2": True, "avx512_f": True, "avx512_bf16": False, "avx512_vnni": False, "amx_bf16": False}


def test_named_formats():
    assert resolve_precision("float32", CPU) == torch.float32
    assert resolve_precision("bfloat16", CPU) == torch.bfloat16


def test_named_formats_of_products():
    for name in ("float32", "bfloat16", "int8"):
        assert resolve_format(name, native=True, device=CPU) == name
        assert resolve_format(name, native=False, device=CPU) == name


def test_int8_is_for_cpus():
    with pytest.raises(BadInputError, match=r"precision int8 is for CPUs, and the model is to run on cuda:0: take b"):
        resolve_format("int8", native=False, device=torch.device("cuda", 0))


def test_auto_looks_at_no_clock(monkeypatch):
    """However busy the machine is, the same model gets the same format."""

    def look():
        raise AssertionError("the time")

    for clock in ("perf_counter", "process_time", "monotonic", "time"):
        monkeypatch.setattr(time, clock, look)
    resolve_precision("auto", CPU)
    for packed in (True, False):
        resolve_format("auto", native=packed, device=CPU)


@pytest.mark.parametrize(
    ("tiles", "narrow", "capability", "chosen"),
    [
        (True, True, "AVX512", "int8"),
        (False, True, "AVX512", "int8"),
        (False, False, "AVX512", "int8"),
        (False, False, "AVX2", "int8"),
        (False, False, "AVX2 with VNNI", "int8"),
        (False, False, "DEFAULT", "float32"),
        (False, False, "SVE256", "float32"),
    ],
)
def test_the_table_of_packed_models(monkeypatch, tiles, narrow, capability, chosen):
    monkeypatch.setattr(precision, "has_native", lambda _: True)
    monkeypatch.setattr(precision, "has_matrix_units", lambda: tiles)
    monkeypatch.setattr(precision, "has_low_precision_products", lambda: narrow)
    monkeypatch.setattr(precision, "has_products_of_bytes", lambda: capability == "AVX2 with VNNI")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability.partition(" ")[0])
    assert resolve_format("auto", native=True, device=CPU) == chosen
    monkeypatch.setattr(precision, "has_native", lambda _: False)
    assert resolve_format("auto", native=True, device=CPU) == "float32"


@pytest.mark.parametrize(
    ("abilities", "chosen"),
    [
        (X86, "float32"),
        (X86 | {"avx512_vnni": True}, "float32"),
        (X86 | {"avx512_bf16": True, "avx512_vnni": True}, "bfloat16"),
        (X86 | {"avx512_bf16": True, "amx_bf16": True}, "bfloat16"),
        ({"architecture": "aarch64", "neon": True, "bf16": True, "sve": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_the_table_of_training_and_of_pytorchs_operations(monkeypatch, abilities, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    assert resolve_precision("auto", CPU) == getattr(torch, chosen)
    assert resolve_format("auto", native=False, device=CPU) == chosen


@pytest.mark.parametrize(("capability", "chosen"), [((7, 5), "float32"), ((8, 0), "bfloat16"), ((12, 0), "bfloat16")])
def test_the_table_of_cuda_devices(monkeypatch, capability, chosen):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    device = torch.device("cuda")
    assert resolve_precision("auto", device) == getattr(torch, chosen)
    assert resolve_format("auto", native=False, device=device) == chosen


VNNI = {"avx_vnni": True}
LOW = {"avx512_vnni": True, "avx512_bf16": True}


@pytest.mark.parametrize(
    ("capability", "abilities", "built", "chosen"),
    [
        ("AVX2", {}, ["native_avx2", "native_avxvnni"], "native_avx2"),
        ("AVX2", VNNI, ["native_avx2", "native_avxvnni"], "native_avxvnni"),
        ("AVX2", VNNI, ["native_avx2"], "native_avx2"),
        ("AVX512", VNNI, ["native_avxvnni", "native_avx512"], "native_avx512"),
        ("AVX512", LOW, ["native_avx2", "native_avx512"], "native_avx512"),
        ("AVX512", LOW, ["native_avx2"], "native_avx2"),
        ("AVX2", LOW, ["native_avx512"], None),
        ("AVX512", VNNI | LOW, ["native_avxvnni", "native_avx512", "native_avx512vnni"], "native_avx512vnni"),
        ("DEFAULT", VNNI, ["native_avx2", "native_avxvnni"], None),
    ],
)
def test_each_processor_has_its_library(monkeypatch, capability, abilities, built, chosen):
    monkeypatch.delenv("TRANSDUCE_NATIVE", raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    monkeypatch.setattr(native, "open_library", lambda name: name if name in built else None)
    assert native._library.__wrapped__() == chosen


def test_the_kernels_of_this_processor_are_in_the_table():
    if not has_native(torch.empty(0)):
        pytest.skip("installed without a C++ compiler")
    assert precision.kernels_of_processor() in precision.NATIVE
