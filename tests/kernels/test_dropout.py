import pytest
import torch

from transduce.kernels import WHOLE, Dropped, dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_frequency_and_expectation(probability):
    torch.manual_seed(5)
    x = torch.ones(1000, 1009)
    y = dropout(x, Dropped(probability))
    # Five standard deviations of a binomial share.
    tolerance = 5 * (probability * (1 - probability) / x.numel()) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(probability, abs=tolerance)
    assert y.mean().item() == pytest.approx(1, abs=tolerance / (1 - probability))
    assert y.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-4)


def test_elements_rows_and_draws_are_independent():
    torch.manual_seed(7)
    probability, x = 0.3, torch.ones(1000, 1009)
    zero = (dropout(x, Dropped(probability)) == 0).float() - probability
    again = (dropout(x, Dropped(probability)) == 0).float() - probability
    variance = probability * (1 - probability)
    # Neighbours share the 64 bits of a draw, so lags 1 to 4 are where dependence would show.
    products = [zero[:, lag:] * zero[:, : zero.shape[1] - lag] for lag in (1, 2, 3, 4)]
    products += [zero[1:] * zero[:-1], zero * again]
    for product in products:
        assert abs(product.mean().item()) < 5 * variance / product.numel() ** 0.5


def test_the_gradient_goes_where_the_values_went():
    x = torch.randn(17, 19, requires_grad=True)
    y = dropout(x, Dropped(0.4))
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, y / x).detach())


def test_a_tiny_probability_drops_hardly_anything():
    torch.manual_seed(11)
    assert (dropout(torch.ones(1000, 100), Dropped(1e-7)) == 0).float().mean() < 1e-3


def test_bfloat16_is_scaled_before_it_is_rounded():
    y = dropout(torch.full((31, 37), 1.5, dtype=torch.bfloat16), Dropped(0.1))
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1.5 / 0.9).bfloat16().item()}


def test_seeds():
    x = torch.ones(13, 17)
    torch.manual_seed(1)
    first, second = dropout(x, Dropped(0.5)), dropout(x, Dropped(0.5))
    torch.manual_seed(1)
    assert dropout(x, Dropped(0.5)).equal(first)
    assert not first.equal(second)


def test_nothing_to_drop():
    x = torch.randn(3, 5)
    assert dropout(x, WHOLE) is x
