"""Means, deviations and intervals by hand."""

import math

import numpy as np
import pytest

from transduce.lab.figure import _STUDENT, Deviation, Difference, Figure, write_difference, write_figure


def test_the_spread_is_the_sample_standard_deviation():
    assert Figure.of([3.0, 5.0, 10.0]) == Figure(6.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert Figure.of([3.0]) == Figure(3.0, None)


def test_perplexities_of_trainings_that_diverged_have_a_mean_and_a_spread():
    """The largest number is 1.8e308: two of these have a larger sum, and each a larger square."""
    found = Figure.of([8e307, 8e307, 2e307])
    assert (found.mean, found.spread) == (pytest.approx(6e307), pytest.approx(6e307 / math.sqrt(3)))
    assert write_figure(found, ".2f") == "6e+307 ± 3.46e+307"
    assert write_figure(Figure(5.0, 1.25), ".2f") == "5.00 ± 1.25"


def test_one_deviation_for_all_models():
    """Squares 1 + 1 and 16 + 16, of two degrees of freedom; one seed has none, and what diverged tells of no other."""
    found = Deviation.of([[20.0, 22.0], [10.0, 18.0], [19.0], [3.0, math.inf], []])
    assert found == Deviation(math.sqrt(17), 2)


def test_a_difference_has_the_interval_of_both_means():
    deviation = Deviation(3.0, 4)  # of which t is 2.776
    assert deviation.compare([7.0, 9.0], [2.0, 3.0, 4.0]) == Difference(
        5.0, pytest.approx(2.776 * 3 * math.sqrt(1 / 2 + 1 / 3))
    )
    assert deviation.compare([math.inf], [2.0]).is_significant
    assert not deviation.compare([math.inf], [math.inf]).is_significant


def test_one_seed_each_knows_of_no_interval():
    found = Deviation.of([[3.0], [4.0]]).compare([3.0], [4.0])
    assert (found, found.is_significant) == (Difference(-1.0, None), False)


def test_the_intervals_have_95_percent_of_student_s_distribution():
    """Its density added up over many narrow strips."""
    for degrees, end in enumerate(_STUDENT, 1):
        places = (np.arange(200_000) + 0.5) * end / 200_000
        scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
        inside = 2 * (scale * (1 + places**2 / degrees) ** (-(degrees + 1) / 2)).sum() * end / 200_000
        assert inside == pytest.approx(0.95, abs=1e-4)


def test_what_is_significant_is_bold():
    assert write_difference(Difference(-1.26, 1.25), "+.1f") == "**-1.3** ± 1.2"
    assert write_difference(Difference(1.25, 1.26), "+.2f") == "+1.25 ± 1.26"
    assert write_difference(Difference(1.25, None), "+.2f") == "+1.25"
    assert write_difference(None, "+.2f") == ""
