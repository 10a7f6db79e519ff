import pytest
import torch

from transduce.kernels import linear_maps, projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.linear_maps import lay_down
from transduce.kernels.loss import _LOGITS
from transduce.kernels.native import call

# Rows, inputs and the maps' outputs: single numbers, odd ones, whole blocks, more rows than are laid out at a time.
SIZES = [
    (1, 1, (1,)),
    (7, 13, (5,)),
    (301, 33, (17, 19, 24)),
    (50, 64, (48, 48)),
    (2053, 70, (65, 3)),
    (97, 130, (1001,)),
]


def draw(rows, inputs, outputs, *, bias=True):
    torch.manual_seed(rows)
    x = torch.randn(rows, inputs).requires_grad_()
    weights = [torch.randn(each, inputs).requires_grad_() for each in outputs]
    return x, weights, [torch.randn(each).requires_grad_() if bias else None for each in outputs]


def rounded(x):
    return x.bfloat16().double()


@pytest.mark.usefixtures("own_maps")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_values_and_gradients_are_those_of_the_formula(rows, inputs, outputs, bias):
    x, weights, biases = draw(rows, inputs, outputs, bias=bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_maps(x, weights, biases)
    assert found.dtype == torch.bfloat16
    whole = rounded(torch.cat(weights))
    expected = rounded(x) @ whole.T + (torch.cat(biases).double() if bias else 0)
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.01 * inputs**0.5)
    gradient = torch.randn(found.shape).bfloat16()
    found.backward(gradient)
    torch.testing.assert_close(x.grad.double(), gradient.double() @ whole, rtol=0.02, atol=0.01 * whole.shape[0] ** 0.5)
    right = gradient.double().T @ rounded(x)
    of_weights = torch.cat([each.grad for each in weights]).double()
    torch.testing.assert_close(of_weights, right, rtol=0.02, atol=0.01 * rows**0.5)
    if bias:
        of_biases = torch.cat([each.grad for each in biases]).double()
        torch.testing.assert_close(of_biases, gradient.double().sum(0), rtol=0.02, atol=0.01 * rows**0.5)


def test_the_kernel_rounds_once(way, own_maps):
    if way == "plain":
        pytest.skip("PyTorch rounds what it adds up, too")
    x, weights, biases = draw(301, 33, (17, 19, 24))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_maps(x, weights, biases)
    exact = rounded(x) @ rounded(torch.cat(weights)).T + torch.cat(biases).double()
    assert (found.double() - exact).abs().le(exact.abs() * 2**-8 + 1e-5).all()
    gradient = torch.randn(found.shape).bfloat16()
    found.backward(gradient)
    of_weights, right = torch.cat([each.grad for each in weights]), gradient.double().T @ rounded(x)
    torch.testing.assert_close(of_weights.double(), right, rtol=1e-5, atol=1e-4)
    of_biases = torch.cat([each.grad for each in biases])
    torch.testing.assert_close(of_biases.double(), gradient.double().sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("own_maps")
def test_every_row_of_a_batch_is_mapped():
    x, weights, biases = draw(60, 16, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        flat, batch = (linear_maps(each, weights, biases) for each in (x, x.view(3, 4, 5, 16)))
        none = linear_maps(x[:0], weights, biases)
    assert batch.shape == (3, 4, 5, 8)
    assert torch.equal(batch.flatten(end_dim=2), flat)
    assert none.shape == (0, 8)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("add", [0, 1])
@pytest.mark.parametrize("kernel", ["map_rows_backward", "map_rows_backward_by_tiles"])
def test_no_rows_have_gradients_of_zero(kernel, add):
    """As where no sentence of a batch has a memory: whoever calls need not clear them before."""
    weights, biases = [torch.ones(5, 7), torch.ones(2, 7)], [torch.ones(5), torch.ones(2)]
    given = [[torch.full_like(each, 3) for each in several] for several in (weights, biases)]
    maps = lay_down(weights, biases, *given)
    x, gradient = torch.empty(0, 7, dtype=torch.bfloat16), torch.empty(0, 7, dtype=torch.bfloat16)
    call(kernel, None, gradient.data_ptr(), x.data_ptr(), maps, None, 0, add, 0)
    assert {each.unique().item() for several in given for each in several} == {3.0 * add}


@pytest.mark.usefixtures("own_maps")
def test_what_is_no_number_stays_in_its_row():
    x, weights, biases = draw(13, 33, (17,))
    spoilt = x.detach().clone()
    spoilt[5, 7] = torch.nan
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = linear_maps(spoilt, weights, biases), linear_maps(x, weights, biases)
    assert found[5].isnan().all()
    others = torch.arange(13) != 5
    assert torch.equal(found[others], expected[others])


@pytest.mark.usefixtures("own_maps")
def test_without_autocast_products_are_float32s():
    x, weights, biases = draw(60, 16, (8, 4))
    found = linear_maps(x, weights, biases)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x @ torch.cat(weights).T + torch.cat(biases), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("own_maps")
def test_rows_that_need_no_gradient_get_none():
    x, weights, biases = draw(60, 16, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        linear_maps(x.detach(), weights, biases).float().sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weights[0].grad, rounded(x).sum(0).expand(8, -1).float(), rtol=0.02, atol=0.05)


@pytest.mark.usefixtures("own_maps")
def test_the_loss_projects_by_the_same_products(monkeypatch):
    monkeypatch.setitem(_LOGITS, "cpu", 101 * 29)  # three chunks, whose gradients of the weights are added up
    x, (weight,), _ = draw(301, 32, (29,), bias=False)
    x, weight = (each.detach().bfloat16().float().div_(8).requires_grad_() for each in (x, weight))
    labels = torch.randint(29, (301,))
    expected = smoothed_cross_entropy(x @ weight.T, labels, 0.1)
    right = torch.autograd.grad(expected[0], (x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = projected_cross_entropy(x, weight, labels, 0.1)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
    for each, one in zip(torch.autograd.grad(found[0], (x, weight)), right, strict=True):
        torch.testing.assert_close(each, one, rtol=0.02, atol=0.01 * one.abs().max().item())
