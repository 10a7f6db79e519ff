import pytest

from benchmarks.powers import exponent


def test_by_hand():
    # 3 n^2 where n is large; what costs more than it should for small n is not looked at.
    costs = {32: 3072.0, 1: 1000.0, 8: 192.0, 2: 999.0, 16: 768.0}
    assert exponent(costs, tail=3) == pytest.approx(2)
    # Two sizes: log(81 / 9) / log(25 / 5) = 2 log 3 / log 5.
    assert exponent({5: 9.0, 25: 81.0}, tail=2) == pytest.approx(1.365212)
