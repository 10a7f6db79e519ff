"""Products in a loop, whose weights are differentiated once."""

import pytest
import torch
from torch.nn import functional as F

from transduce.layers.cells import LoopProduct


def weights():
    torch.manual_seed(3)
    return (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 7), (5,), (3, 7)))


def loop(product, x, mix):
    """Three steps, each of which reads what the one before made; the sum behind each of them."""
    totals = [x.new_zeros(())]
    for step in range(3):
        y = product(x)
        totals.append(totals[-1] + (step + 1) * y.square().sum())
        x = torch.tanh(y @ mix)
    return totals


@pytest.mark.parametrize("biased", [True, False])
def test_gradients_are_those_of_a_product_in_each_step(biased):
    weight, bias, x = weights()
    bias = bias if biased else None
    mix = torch.randn(5, 7, dtype=torch.float64)
    learned = [each for each in (weight, bias, x) if each is not None]
    of_last, of_second = (
        torch.autograd.grad(loop(lambda x: F.linear(x, weight, bias), x, mix)[step], learned) for step in (3, 2)
    )
    totals = loop(LoopProduct(weight, bias, steps=3, rows=3), x, mix)
    # A backward pass that does not come to the weights, or not through all steps, leaves nothing for the next one.
    (of_x,) = torch.autograd.grad(totals[3], [x], retain_graph=True)
    torch.testing.assert_close(of_x, of_last[-1])
    for step, expected in ((3, of_last), (2, of_second), (3, of_last)):
        torch.testing.assert_close(torch.autograd.grad(totals[step], learned, retain_graph=True), expected)


def test_a_loop_may_end_before_its_time():
    weight, bias, x = weights()
    product = LoopProduct(weight, bias, steps=7, rows=3)
    found = torch.autograd.grad(product(x).square().sum() + product(2 * x).sum(), [weight, bias])
    plain = F.linear(x, weight, bias).square().sum() + F.linear(2 * x, weight, bias).sum()
    torch.testing.assert_close(found, torch.autograd.grad(plain, [weight, bias]))


def test_without_gradients_it_is_a_product():
    weight, bias, x = weights()
    with torch.no_grad():
        assert torch.equal(LoopProduct(weight, bias, steps=1, rows=3)(x), F.linear(x, weight, bias))
    assert not LoopProduct(weight.detach(), steps=1, rows=3)(x.detach()).requires_grad
