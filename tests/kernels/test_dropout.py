import pytest
import torch

from transduce.kernels import dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_frequency_and_expectation(probability):
    torch.manual_seed(5)
    x = torch.ones(1000, 1009)
    y = dropout(x, probability, training=True)
    # Five standard deviations of a binomial share.
    tolerance = 5 * (probability * (1 - probability) / x.numel()) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(probability, abs=tolerance)
    assert y.mean().item() == pytest.approx(1, abs=tolerance / (1 - probability))
    assert y.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-4)


def test_elements_rows_and_draws_are_independent():
    torch.manual_seed(7)
    probability, x = 0.3, torch.ones(1000, 1009)
    zero = (dropout(x, probability, training=True) == 0).float() - probability
    again = (dropout(x, probability, training=True) == 0).float() - probability
    variance = probability * (1 - probability)
    # Neighbours share the 64 bits of a draw, so lags 1 to 4 are where dependence would show.
    products = [zero[:, lag:] * zero[:, : zero.shape[1] - lag] for lag in (1, 2, 3, 4)]
    products += [zero[1:] * zero[:-1], zero * again]
    for product in products:
        assert abs(product.mean().item()) < 5 * variance / product.numel() ** 0.5


def test_the_gradient_goes_where_the_values_went():
    x = torch.randn(17, 19, requires_grad=True)
    y = dropout(x, 0.4, training=True)
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, y / x).detach())


def test_a_tiny_probability_drops_hardly_anything():
    torch.manual_seed(11)
    assert (dropout(torch.ones(1000, 100), 1e-7, training=True) == 0).float().mean() < 1e-3


def test_bfloat16_is_scaled_before_it_is_rounded():
    y = dropout(torch.full((31, 37), 1.5, dtype=torch.bfloat16), 0.1, training=True)
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1.5 / 0.9).bfloat16().item()}


def test_seeds():
    x = torch.ones(13, 17)
    torch.manual_seed(1)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(1)
    assert dropout(x, 0.5, training=True).equal(first)
    assert not first.equal(second)


@pytest.mark.parametrize(("probability", "training"), [(0.0, True), (0.5, False)])
def test_nothing_to_drop(probability, training):
    x = torch.randn(3, 5)
    assert dropout(x, probability, training=training) is x
