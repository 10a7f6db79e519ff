import pytest
import torch

from transduce.kernels import relu_dropout


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropped", [0.0, 0.375])
@pytest.mark.parametrize("size", [(1, 1), (3, 7), (101, 263), (5, 3, 64), (0, 8)])
def test_values_and_gradients_are_those_of_the_formula(size, dropped, dtype):
    torch.manual_seed(3)
    x = torch.randn(size, dtype=dtype, requires_grad=True)
    y = relu_dropout(x * 1, dropped)
    kept = y.detach() != 0
    assert kept[x > 0].all() or dropped
    assert not kept[x <= 0].any()
    scale = 1 / (1 - dropped)
    tolerance = {"rtol": 1e-4 if dtype == torch.float32 else 0.01, "atol": 1e-6}
    torch.testing.assert_close(y.double(), torch.where(kept, x.double() * scale, 0), **tolerance)
    received = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, received)
    torch.testing.assert_close(gradient.double(), torch.where(kept, received.double() * scale, 0), **tolerance)
