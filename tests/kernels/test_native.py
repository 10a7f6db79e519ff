"""The random numbers of the C++ kernels, and the door to them."""

import ctypes

import pytest
import torch

from transduce.kernels import Dropped, add_norm, native


@pytest.fixture(autouse=True)
def _built(way):
    if way == "plain":
        pytest.skip("PyTorch's own operations draw by tests of their own")


def drop_of_ones(probability, *shape):
    """What dropout makes of ones."""
    width = shape[-1:]
    tensors = torch.zeros(shape), torch.ones(shape), torch.ones(width), torch.zeros(width)
    return add_norm(*tensors, 1e-6, Dropped(probability), post=False)[0]


def zeros(probability, *shape):
    """1 where something was dropped, less the probability."""
    return (drop_of_ones(probability, *shape) == 0).float() - probability


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_frequency_and_expectation(probability):
    torch.manual_seed(5)
    y = drop_of_ones(probability, 1000, 1009)
    # Five standard deviations of a binomial share.
    tolerance = 5 * (probability * (1 - probability) / y.numel()) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(probability, abs=tolerance)
    assert y.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-4)


def test_elements_rows_and_draws_are_independent():
    torch.manual_seed(7)
    probability = 0.3
    first, second = zeros(probability, 1000, 1009), zeros(probability, 1000, 1009)
    variance = probability * (1 - probability)
    # Neighbours share the 64 bits of a draw, so lags 1 to 4 are where dependence would show.
    products = [first[:, lag:] * first[:, : first.shape[1] - lag] for lag in (1, 2, 3, 4, 64, 256)]
    products += [first[1:] * first[:-1], first * second, first[1:] * second[:-1], first[:, 4:] * second[:, :-4]]
    for product in products:
        assert abs(product.mean().item()) < 5 * variance / product.numel() ** 0.5


def test_how_many_of_a_row_are_dropped_spreads_as_a_binomial():
    torch.manual_seed(11)
    probability, rows, columns = 0.3, 4001, 1009
    counts = (zeros(probability, rows, columns) + probability).sum(1)
    variance = columns * probability * (1 - probability)
    # The variance of a sample variance of something near normal is 2 / (n - 1) of its square.
    assert counts.var().item() == pytest.approx(variance, rel=5 * (2 / (rows - 1)) ** 0.5)


def test_seeds():
    torch.manual_seed(1)
    first, second = zeros(0.5, 13, 17), zeros(0.5, 13, 17)
    torch.manual_seed(1)
    assert zeros(0.5, 13, 17).equal(first)
    assert not first.equal(second)


def test_the_number_of_threads_changes_nothing():
    threads = torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            torch.manual_seed(1)
            found.append(zeros(0.5, 301, 17))
    finally:
        torch.set_num_threads(threads)
    assert found[0].equal(found[1])


def test_a_tiny_probability_drops_hardly_anything():
    torch.manual_seed(11)
    assert (drop_of_ones(1e-7, 1000, 100) == 0).float().mean() < 1e-3


@pytest.mark.parametrize("origin", [None, "/nowhere/native.so"])
def test_a_library_that_is_not_there_or_does_not_fit_is_done_without(origin, monkeypatch):
    spec = None if origin is None else type("Spec", (), {"origin": origin})
    monkeypatch.setattr(native, "find_spec", lambda _: spec)
    assert native.open_library("native_avx2") is None


def test_the_structures_are_as_large_as_the_kernels_think():
    assert ctypes.sizeof(native.Chance) == 16
    assert ctypes.sizeof(native.Sequences) == 6 * 8 + 4 * 8 + 8
