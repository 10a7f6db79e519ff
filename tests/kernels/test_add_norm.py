import pytest
import torch

from transduce.kernels import WHOLE, Dropped, add_norm

EPSILON = 1e-6
# More rows than threads have, and more columns than the kernels draw dropout for at once, no multiple of anything.
SIZES = [(1, 1), (3, 7), (211, 259), (5, 3, 64)]
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (0.02, 0.02)}


def formula(x, output, gain, bias, factor):
    """LayerNorm(x + factor output) from its row's mean and variance (Ba et al. 2016), in float64, and the sum."""
    x, output, gain, bias = (each.double() for each in (x, output, gain, bias))
    total = x + factor.double() * output
    centred = total - total.mean(-1, keepdim=True)
    return total, centred / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gain + bias


def inputs(size, dtype=torch.float32):
    torch.manual_seed(3)
    x, output, gain, bias = torch.randn(size), torch.randn(size), torch.randn(size[-1:]), torch.randn(size[-1:])
    return [each.requires_grad_() for each in (x, output.to(dtype), gain, bias)]


def find_kept(tensors, dropped):
    """What dropout lets through: the sum shows it. The same seed draws the same for either norm."""
    torch.manual_seed(7)
    total, _ = add_norm(*tensors, EPSILON, Dropped(dropped), post=False)
    return (total - tensors[0]).detach() != 0


@pytest.mark.usefixtures("way")
def test_a_format_that_the_kernels_do_not_know_is_pytorchs():
    tensors = inputs((3, 7))
    with torch.autocast("cpu", dtype=torch.float16):
        total, normalized = add_norm(*tensors, EPSILON, Dropped(0.0), post=False)
    assert (total.dtype, normalized.dtype) == (torch.float32, torch.float16)
    torch.testing.assert_close(normalized.double(), formula(*tensors, torch.tensor(1))[1], rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("dropped", [0.0, 0.375])
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_formula(size, dropped, dtype, post):
    tensors = inputs(size, dtype)
    rtol, atol = TOLERANCE[dtype]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        kept = find_kept(tensors, dropped)
        torch.manual_seed(7)
        found = add_norm(*tensors, EPSILON, Dropped(dropped), post=post)
    assert dropped or kept.all()
    total, normalized = formula(*tensors, kept / (1 - dropped))
    expected = normalized if post else total, normalized
    assert [each.dtype for each in found] == [torch.float32, dtype]
    for each, right in zip(found, expected, strict=True):
        torch.testing.assert_close(each.double(), right, rtol=rtol, atol=atol)
    received = [torch.randn_like(each) for each in found]
    gradients = torch.autograd.grad(found, tensors, received)
    for each, right in zip(
        gradients, torch.autograd.grad(expected, tensors, [one.double() for one in received]), strict=True
    ):
        scale = max(1.0, right.abs().max().item())
        torch.testing.assert_close(each.double(), right.double(), rtol=rtol, atol=10 * atol * scale)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("used", [0, 1])
def test_a_result_that_nobody_uses_has_no_gradient(used, post, dtype):
    tensors = inputs((13, 31), dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = add_norm(*tensors, EPSILON, WHOLE, post=post)[used]
    total, normalized = formula(*tensors, torch.ones(()))
    expected = normalized if post or used else total
    received = torch.randn_like(found)
    gradients = torch.autograd.grad(found, tensors[:2], received)
    right = torch.autograd.grad(expected, tensors[:2], received.double())
    for each, one in zip(gradients, right, strict=True):
        torch.testing.assert_close(
            each.double(), one.double(), rtol=0.02, atol=0.02 if dtype == torch.bfloat16 else 1e-4
        )


@pytest.mark.usefixtures("way")
def test_without_an_output_the_sum_is_what_was():
    x, _, gain, bias = inputs((13, 31))
    total, normalized = add_norm(x, None, gain, bias, EPSILON, Dropped(0.4), post=False)
    assert total.equal(x)
    expected = formula(x, torch.zeros(13, 31), gain, bias, torch.ones(()))[1]
    torch.testing.assert_close(normalized.double(), expected, rtol=1e-4, atol=1e-4)
    (found,) = torch.autograd.grad(normalized.square().sum() + total.sum(), x)
    (right,) = torch.autograd.grad(expected.square().sum() + x.double().sum(), x)
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("way")
def test_nothing_at_all():
    found = add_norm(
        torch.zeros(0, 8), torch.zeros(0, 8), torch.ones(8), torch.zeros(8), EPSILON, Dropped(0.1), post=True
    )
    assert [each.shape for each in found] == [(0, 8)] * 2


def test_sums_over_threads_do_not_depend_on_which_is_done_first():
    """Three and more: the sums of two are the same in either order."""
    tensors = inputs((211, 259))
    total, normalized = add_norm(*tensors, EPSILON, Dropped(0.0), post=False)
    received = [torch.randn_like(total), torch.randn_like(normalized)]
    threads = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        found = [torch.autograd.grad((total, normalized), tensors[2:], received, retain_graph=True) for _ in range(100)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for each in found for one, other in zip(each, found[0], strict=True))
