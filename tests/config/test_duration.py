import pytest

from transduce.config.duration import describe_time


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_times_for_people(seconds, said):
    assert describe_time(seconds) == said
