"""Where the kernels for CUDA devices are used: nowhere that they were not tried out."""

import logging
from types import SimpleNamespace

import pytest
import torch

from transduce.kernels import gpu

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def on(device):
    """All that is looked at of a tensor."""
    return SimpleNamespace(device=device)


@pytest.fixture
def devices(monkeypatch):
    """A machine that seems to have two devices; Triton is tried out by what ``tried`` holds."""
    tried = []
    monkeypatch.setattr(gpu, "find_spec", lambda _: object())
    monkeypatch.setattr(gpu, "_try_out", tried.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))

    class Context:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(torch.cuda, "device", Context)
    gpu._knows.cache_clear()
    yield tried
    gpu._knows.cache_clear()


has_triton = gpu.has_triton.__wrapped__ if hasattr(gpu.has_triton, "__wrapped__") else gpu.has_triton


def test_a_device_is_tried_out_once(devices):
    assert has_triton(on(FIRST))
    assert has_triton(on(FIRST), on(FIRST))
    assert devices == [FIRST]


def test_kernels_would_run_on_the_current_device_alone(devices):
    assert not has_triton(on(SECOND))
    assert not has_triton(on(FIRST), on(SECOND))
    assert not has_triton(on(torch.device("cpu")))


def test_older_devices_are_left_to_pytorch(devices, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert not has_triton(on(FIRST))
    assert devices == []


def test_without_a_compiler_it_is_said_what_to_install(devices, monkeypatch, caplog):
    def fail(_):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(gpu, "_try_out", fail)
    with caplog.at_level(logging.WARNING):
        assert not has_triton(on(FIRST))
        assert not has_triton(on(FIRST))
    (said,) = caplog.messages
    assert "Failed to find C compiler" in said
    assert "gcc" in said
