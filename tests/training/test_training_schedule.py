import pytest

from transduce.training import constant_rate, cooldown, learning_rate


def test_the_papers_base_peaks_after_its_warmup():
    # 512^-0.5 4000^-0.5 = 1 / sqrt(2,048,000) = 6.988e-4.
    peak = learning_rate(4000, 512, 4000, 1.0)
    assert peak == pytest.approx(512**-0.5 * 4000**-0.5)
    assert peak == pytest.approx(6.988e-4, rel=1e-4)
    assert learning_rate(3999, 512, 4000, 1.0) < peak > learning_rate(4001, 512, 4000, 1.0)


def test_linear_up_then_inverse_square_root_down():
    # d_model 64 gives 1/8, warm-up 100 gives a peak of 1/8 1/10.
    assert learning_rate(1, 64, 100, 1.0) == pytest.approx(0.0125 / 100)
    assert learning_rate(50, 64, 100, 1.0) == pytest.approx(0.0125 / 2)
    assert learning_rate(100, 64, 100, 1.0) == pytest.approx(0.0125)
    assert learning_rate(400, 64, 100, 1.0) == pytest.approx(0.0125 / 2)


def test_the_factor_multiplies():
    assert learning_rate(7, 64, 100, 3.0) == pytest.approx(3 * learning_rate(7, 64, 100, 1.0))


def test_a_constant_rate_is_reached_in_a_straight_line_and_kept():
    assert [constant_rate(step, 0.3, 10) for step in (1, 5, 10, 11, 997)] == pytest.approx([0.03, 0.15, 0.3, 0.3, 0.3])


def test_cooldown_falls_in_a_straight_line_over_the_last_steps():
    assert [cooldown(step, 10, 4) for step in (1, 6, 7, 8, 9, 10)] == [1, 1, 1, 0.75, 0.5, 0.25]


def test_without_cooldown_the_schedule_is_the_papers_to_the_end():
    assert all(cooldown(step, 10, 0) == 1 for step in range(1, 11))
