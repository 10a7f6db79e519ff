"""Compiled only where somebody asked for it; tests/test_cuda.py holds what comes of it to the plain formulas."""

import torch

from transduce.kernels import one_pass


def double(x):
    return 2 * x


def test_only_where_asked_for_and_on_cuda(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: asked.append((function, dynamic)) or len)
    one_pass.compiled.cache_clear()
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert one_pass.in_one_pass(double, cuda) is double
    monkeypatch.setenv("TRANSDUCE_COMPILE", "1")
    assert one_pass.in_one_pass(double, cpu) is double
    assert one_pass.in_one_pass(double, cuda) is one_pass.in_one_pass(double, cuda) is len
    assert asked == [(double, True)]
    one_pass.compiled.cache_clear()
