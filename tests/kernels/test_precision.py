import torch

from transduce.kernels import resolve_precision

CPU = torch.device("cpu")


def test_named_formats():
    assert resolve_precision("float32", CPU) == torch.float32
    assert resolve_precision("bfloat16", CPU) == torch.bfloat16


def test_auto_is_the_same_every_time():
    assert resolve_precision("auto", CPU) == resolve_precision("auto", CPU)
    assert resolve_precision("auto", CPU) in {torch.float32, torch.bfloat16}
