import time
from itertools import count

import pytest
import torch

from transduce.kernels import has_native, resolve_format, resolve_precision
from transduce.kernels.precision import widest

CPU = torch.device("cpu")


def test_named_formats():
    assert resolve_precision("float32", CPU) == torch.float32
    assert resolve_precision("bfloat16", CPU) == torch.bfloat16


def test_auto_is_the_same_every_time():
    assert resolve_precision("auto", CPU) == resolve_precision("auto", CPU)
    assert resolve_precision("auto", CPU) in {torch.float32, torch.bfloat16}


def test_named_formats_of_products():
    for name in ("float32", "bfloat16", "int8"):
        assert resolve_format(name, packed=True, device=CPU) == name
        assert resolve_format(name, packed=False, device=CPU) == name


def test_auto_is_int8_only_where_its_kernel_is():
    assert resolve_format("auto", packed=False, device=CPU) in {"float32", "bfloat16"}
    found = resolve_format("auto", packed=True, device=CPU)
    assert found in ({"float32", "bfloat16", "int8"} if has_native(torch.empty(0)) else {"float32"})
    assert resolve_format("auto", packed=True, device=CPU) == found


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"float32": 10, "bfloat16": 5, "int8": 3}, "int8"),
        ({"float32": 10, "bfloat16": 5, "int8": 4.5}, "bfloat16"),
        ({"float32": 10, "bfloat16": 9, "int8": 7}, "int8"),
        ({"float32": 10, "bfloat16": 20, "int8": 9}, "float32"),
    ],
)
def test_the_widest_that_no_narrower_one_beats_by_far(seconds, chosen, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    calls = count()

    def product(takes):
        # Three of four calls meet something else that the machine does.
        now[0] += takes * (1 if next(calls) % 4 == 0 else 10)

    products = {each: lambda takes=takes: product(takes) for each, takes in seconds.items()}
    assert widest(products) == chosen
