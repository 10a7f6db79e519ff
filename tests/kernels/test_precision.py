import torch

from transduce.kernels import has_native, resolve_format, resolve_precision

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
