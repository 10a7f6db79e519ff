import pytest
import torch

from transduce.config import preset
from transduce.layers import Residual


def layer_norm(x):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()


def test_post_norm_is_the_published_formula():
    residual = Residual(preset("tiny", {"norm": "post", "dropout": 0})).train()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    assert residual.prepare(x) is x
    torch.testing.assert_close(residual.add(x, output), layer_norm(x + output))


def test_pre_norm_leaves_the_sum_alone():
    residual = Residual(preset("tiny", {"norm": "pre", "dropout": 0})).train()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    torch.testing.assert_close(residual.prepare(x), layer_norm(x))
    torch.testing.assert_close(residual.add(x, output), x + output)


def test_dropout_falls_on_the_sublayer_and_not_on_the_residual():
    residual = Residual(preset("tiny", {"norm": "pre", "dropout": 0.5})).train()
    x, output = torch.full((7, 128), 3.0), torch.ones(7, 128)
    assert residual.add(x, output).unique().tolist() == [3.0, 5.0]
    assert residual.eval().add(x, output).unique().tolist() == [4.0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_a_residual_only_the_sublayer_goes_on(norm):
    residual = Residual(preset("tiny", {"norm": norm, "dropout": 0.5, "residual": False})).eval()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    assert residual.prepare(x).equal(x) == (norm == "post")
    torch.testing.assert_close(residual.add(x, output), layer_norm(output) if norm == "post" else output)
    dropped = residual.train().add(x, torch.ones(3, 128)) if norm == "pre" else None
    assert dropped is None or dropped.unique().tolist() == [0.0, 2.0]
