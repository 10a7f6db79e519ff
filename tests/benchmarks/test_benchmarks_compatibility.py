import math

import pytest
import torch

from benchmarks.compatibility import expected_variance, jacobian_norm, measure, measure_parts


@pytest.mark.parametrize(("function", "d_k"), [("dot_product", 5), ("dot_product", 43), ("multiplicative", 43)])
def test_the_logits_of_products_have_the_variance_d_k(function, d_k):
    torch.manual_seed(1)
    found = measure_parts(function, d_k, queries=100, keys=17, parts=20).variance
    assert float(found.mean()) == pytest.approx(d_k, rel=0.05)
    assert expected_variance(function, d_k) == d_k


@pytest.mark.parametrize("d_k", [5, 43])
def test_scaling_makes_the_variance_one(d_k):
    torch.manual_seed(2)
    assert float(measure("scaled_dot_product", d_k, 2000, 17).variance.mean()) == pytest.approx(1, rel=0.05)
    assert expected_variance("scaled_dot_product", d_k) == 1


def test_the_variance_of_additive_logits_hardly_grows():
    torch.manual_seed(3)
    query, key = torch.randn(2000, 1), torch.randn(1, 2000)
    by_chance = float(torch.tanh(query + key).var(dim=1).mean())
    assert expected_variance("additive", 10**6) == pytest.approx(2 * by_chance, rel=0.05)
    found = measure_parts("additive", 43, queries=50, keys=17, parts=40).variance
    assert float(found.mean()) == pytest.approx(2 * 43 / 44 * by_chance, rel=0.05)


def test_only_unscaled_products_end_in_certainty():
    def entropy(function, d_k):
        torch.manual_seed(4)
        return float(measure(function, d_k, 300, 13).entropy.mean())

    for function in ("scaled_dot_product", "additive"):
        assert entropy(function, 211) == pytest.approx(entropy(function, 11), rel=0.05)
        assert 0.8 * math.log(13) < entropy(function, 211) < math.log(13)
    for function in ("dot_product", "multiplicative"):
        assert entropy(function, 211) < 0.4 * entropy(function, 11)


def test_one_dimension_needs_no_scale():
    torch.manual_seed(5)
    plain = measure("dot_product", 1, 7, 11)
    torch.manual_seed(5)
    scaled = measure("scaled_dot_product", 1, 7, 11)
    torch.testing.assert_close(plain.gradient, scaled.gradient)


def test_the_jacobian_is_the_softmaxs():
    logits = 3 * torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    softmax = torch.nn.Softmax(dim=0)
    expected = torch.stack([torch.autograd.functional.jacobian(softmax, row).norm() for row in logits])
    torch.testing.assert_close(jacobian_norm(logits.softmax(dim=1)), expected)
    evenly = jacobian_norm(torch.full((1, 64), 1 / 64))
    assert float(evenly) == pytest.approx(math.sqrt(63) / 64)
    assert float(jacobian_norm(torch.eye(1, 64))) == 0


def test_the_gradient_of_two_keys_by_hand():
    """dL/dq = a (1 - a) (g_1 - g_2) (k_1 - k_2), and the Jacobian's norm is 2 a (1 - a): squared, d_k times."""
    torch.manual_seed(7)
    found = measure("dot_product", 101, 3000, 2)
    expected = 101 * float(found.jacobian.square().mean())
    assert float(found.gradient.square().mean()) == pytest.approx(expected, rel=0.25)
