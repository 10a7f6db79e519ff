"""What torch.compile makes of several operations is what they are: shown on the processor, where it can be forced."""

import pytest
import torch

from transduce.kernels import one_pass
from transduce.kernels.add_norm import _add_norm_plainly
from transduce.kernels.loss import _differentiate_plainly


def double(x):
    return 2 * x


def test_only_where_asked_for_and_on_cuda(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: f"compiled for all sizes: {dynamic}")
    one_pass.compiled.cache_clear()
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert one_pass.in_one_pass(double, cuda) is double
    monkeypatch.setenv("TRANSDUCE_COMPILE", "1")
    assert one_pass.in_one_pass(double, cpu) is double
    assert one_pass.in_one_pass(double, cuda) == "compiled for all sizes: True"
    one_pass.compiled.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_loss_is_the_plain_one_for_all_sizes(dtype):
    for tokens in (37, 53):
        logits, labels = torch.randn(tokens, 101).to(dtype), torch.randint(101, (tokens,))
        expected = _differentiate_plainly(logits.clone(), labels, 0.1)
        found = one_pass.compiled(_differentiate_plainly)(logits, labels, 0.1)
        torch.testing.assert_close(found, expected, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("post", [False, True])
def test_compiled_sum_and_norm_are_the_plain_ones_with_gradients(post):
    for tokens in (37, 53):
        leaves = [torch.randn(n, 16).squeeze(0).requires_grad_() for n in (tokens, tokens, 1, 1)]
        weights, found = torch.randn(2, tokens, 16), []
        for function in (one_pass.compiled(_add_norm_plainly), _add_norm_plainly):
            total, ready = function(*leaves, 1e-6, 0.0, torch.bfloat16, post)
            gradients = torch.autograd.grad((total * weights[0] + ready * weights[1]).sum(), leaves)
            found.append([total, ready, *gradients])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
