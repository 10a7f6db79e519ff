import math

import pytest
import torch

from transduce.config import preset
from transduce.layers import MultiHeadAttention
from transduce.layers.linear import make_linear

INPUTS, OUTPUTS = 211, 97


# A uniform number up to a limit has a variance of limit^2 / 3.
@pytest.mark.parametrize(
    ("initializer", "variance"), [("glorot_uniform", 2 / (INPUTS + OUTPUTS)), ("unit_scaling", 1 / INPUTS)]
)
def test_weights_are_uniform_up_to_a_limit(initializer, variance):
    torch.manual_seed(3)
    linear = make_linear(INPUTS, OUTPUTS, bias=True, initializer=initializer)
    weight, limit = linear.weight.detach(), math.sqrt(3 * variance)
    assert weight.shape == (OUTPUTS, INPUTS)
    # The largest of 20,467 falls short of the limit by a 20,467th of it, more or less; and none is beyond.
    assert 0.999 * limit < weight.abs().max().item() <= limit
    # Five standard deviations: of a mean, variance / n; of a variance, 4/5 variance^2 / n, as x^4 is limit^4 / 5.
    assert weight.mean().item() == pytest.approx(0, abs=5 * math.sqrt(variance / weight.numel()))
    assert weight.var().item() == pytest.approx(variance, rel=5 * math.sqrt(0.8 / weight.numel()))
    assert linear.bias.eq(0).all()
    assert make_linear(INPUTS, OUTPUTS, bias=False, initializer=initializer).bias is None


@pytest.mark.parametrize(
    ("compatibility", "name", "limit"),
    # w maps d_k units to one, as Glorot has it; a head's W keeps a query's variance.
    [("additive", "additive", math.sqrt(6 / (31 + 1))), ("multiplicative", "bilinear", math.sqrt(3 / 31))],
)
def test_weights_of_compatibility_functions(compatibility, name, limit):
    torch.manual_seed(3)
    config = preset("base", {"d_model": 14, "heads": 101, "d_k": 31, "d_v": 2, "compatibility": compatibility})
    weight = getattr(MultiHeadAttention(config), name).detach()
    assert 0.99 * limit < weight.abs().max().item() <= limit
    assert weight.square().mean().item() == pytest.approx(limit**2 / 3, rel=5 * math.sqrt(0.8 / weight.numel()))


def test_relative_positions_start_as_glorot_has_it():
    config = preset("base", {"positions": "relative", "max_relative_distance": 97, "heads": 1, "d_k": 31, "d_v": 37})
    relative = MultiHeadAttention(config, relative=True).relative
    assert relative.keys.shape == (195, 31)
    assert relative.values.shape == (195, 37)
    for vectors, width in ((relative.keys, 31), (relative.values, 37)):
        limit = math.sqrt(6 / (195 + width))
        assert 0.99 * limit < vectors.abs().max().item() <= limit
