"""Products in a loop, whose weights are differentiated once."""

import pytest
import torch
from torch.nn import functional as F

from transduce.layers.cells import LoopProduct


def weights():
    torch.manual_seed(3)
    return (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 7), (5,), (3, 7)))


def loop(product, x, mix):
    """Three steps, each of which reads what the one before made."""
    total = x.new_zeros(())
    for step in range(3):
        y = product(x)
        total = total + (step + 1) * y.square().sum()
        x = torch.tanh(y @ mix)
    return total


@pytest.mark.parametrize("biased", [True, False])
def test_gradients_are_those_of_a_product_in_each_step(biased):
    weight, bias, x = weights()
    bias = bias if biased else None
    mix = torch.randn(5, 7, dtype=torch.float64)
    learned = [each for each in (weight, bias, x) if each is not None]
    expected = torch.autograd.grad(loop(lambda x: F.linear(x, weight, bias), x, mix), learned)
    total = loop(LoopProduct(weight, bias), x, mix)
    # A backward pass that does not come to the weights leaves nothing behind for the next one.
    (of_x,) = torch.autograd.grad(total, [x], retain_graph=True)
    torch.testing.assert_close(of_x, expected[-1])
    torch.testing.assert_close(torch.autograd.grad(total, learned), expected)


def test_without_gradients_it_is_a_product():
    weight, bias, x = weights()
    with torch.no_grad():
        assert torch.equal(LoopProduct(weight, bias)(x), F.linear(x, weight, bias))
    assert not LoopProduct(weight.detach())(x.detach()).requires_grad
