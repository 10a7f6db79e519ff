import pytest
import torch

from transduce.config import preset
from transduce.layers import FeedForward


def make(**changes):
    return FeedForward(preset("base", {"d_model": 14, "d_ff": 23, "heads": 2, "dropout": 0.0, **changes}))


def test_it_is_two_maps_around_a_relu():
    layer = make()
    torch.nn.init.normal_(layer.inner.bias)
    torch.nn.init.normal_(layer.outer.bias)
    x = torch.randn(2, 3, 14)
    hidden = (x @ layer.inner.weight.T + layer.inner.bias).clamp(min=0)
    torch.testing.assert_close(layer(x), hidden @ layer.outer.weight.T + layer.outer.bias)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 2 * 14 * 23 + 23 + 14


def test_dropout_falls_behind_the_relu():
    """With 23 ones inside and an outer map to their sum, each output counts what stayed, in twos."""
    layer = make(relu_dropout=0.5).train()
    for weight in layer.parameters():
        torch.nn.init.zeros_(weight)
    torch.nn.init.ones_(layer.inner.bias)
    torch.nn.init.ones_(layer.outer.weight)
    counts = layer(torch.zeros(997, 14))[:, 0]
    assert set(counts.tolist()) <= {2.0 * n for n in range(24)}
    # Five standard deviations of the mean of 997 sums of 23: 4 x 23 x 1/4 is the variance of one.
    assert counts.mean().item() == pytest.approx(23, abs=5 * (23 / 997) ** 0.5)
    assert layer.eval()(torch.zeros(1, 14)).unique().tolist() == [23.0]
