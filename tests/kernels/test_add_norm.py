import pytest
import torch

from transduce.kernels import add_norm

EPSILON = 1e-6
# More rows than threads have, and more columns than the kernels draw dropout for at once, no multiple of anything.
SIZES = [(1, 1), (3, 7), (211, 259), (5, 3, 64)]
TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (0.02, 0.02)}


def formula(x, output, gain, bias, factor):
    """Each element of LayerNorm(x + factor output) from its row's mean and variance (Ba et al. 2016), in float64."""
    x, output, gain, bias = (each.double() for each in (x, output, gain, bias))
    total = x + factor.double() * output
    centred = total - total.mean(-1, keepdim=True)
    return total, centred / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gain + bias


def inputs(size, dtype=torch.float32):
    torch.manual_seed(3)
    x, output, gain, bias = torch.randn(size), torch.randn(size), torch.randn(size[-1:]), torch.randn(size[-1:])
    return [each.requires_grad_() for each in (x, output.to(dtype), gain, bias)]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("dropped", [0.0, 0.375])
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_formula(size, dropped, dtype):
    tensors = inputs(size, dtype)
    rtol, atol = TOLERANCE[dtype]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = add_norm(*tensors, EPSILON, dropped)
    # What was dropped is seen in the sum.
    kept = (found[0] - tensors[0]).detach() != 0
    assert dropped or kept.all()
    total, normalized = formula(*tensors, kept / (1 - dropped))
    assert [each.dtype for each in found] == [torch.float32, torch.float32, dtype]
    for each, expected in zip(found, (total, normalized, normalized), strict=True):
        torch.testing.assert_close(each.double(), expected, rtol=max(rtol, 1e-4), atol=atol)
    received = [torch.randn_like(each) for each in found]
    gradients = torch.autograd.grad(found, tensors, received)
    received_once = [received[0].double(), received[1].double() + received[2].double()]
    for each, expected in zip(gradients, torch.autograd.grad([total, normalized], tensors, received_once), strict=True):
        scale = expected.double().abs().max().item()
        torch.testing.assert_close(
            each.double(), expected.double(), rtol=max(rtol, 1e-4), atol=10 * atol * max(1, scale)
        )


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_a_result_that_nobody_uses_has_no_gradient(asked):
    x, output, gain, bias = inputs((13, 31))
    found = add_norm(x, output, gain, bias, EPSILON, 0.0)
    received = {i: torch.randn_like(found[i]) for i in asked}
    gradients = torch.autograd.grad([found[i] for i in asked], [x, output], list(received.values()))
    total, normalized = formula(x, output, gain, bias, torch.ones(()))
    plain = [total, normalized, normalized]
    expected = torch.autograd.grad([plain[i] for i in asked], [x, output], [r.double() for r in received.values()])
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("way")
def test_without_an_output_the_sum_is_what_was():
    x, _, gain, bias = inputs((13, 31))
    total, normalized, _ = add_norm(x, None, gain, bias, EPSILON, 0.4)
    assert total.equal(x)
    expected = formula(x, torch.zeros(13, 31), gain, bias, torch.ones(()))[1]
    torch.testing.assert_close(normalized.double(), expected, rtol=1e-4, atol=1e-4)
    (found,) = torch.autograd.grad(normalized.square().sum() + total.sum(), x)
    (right,) = torch.autograd.grad(expected.square().sum() + x.double().sum(), x)
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("way")
def test_nothing_at_all():
    found = add_norm(torch.zeros(0, 8), torch.zeros(0, 8), torch.ones(8), torch.zeros(8), EPSILON, 0.1)
    assert [each.shape for each in found] == [(0, 8)] * 3
