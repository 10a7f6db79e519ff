"""How long a training still takes. Ten steps since step 10 took 40 seconds; there are 100."""

import pytest

from transduce.config import TrainConfig
from transduce.training.progress import Pace

PACE = Pace(step=10, seconds=30.0)
STEP, SECONDS = 20, 70.0


@pytest.mark.parametrize(
    ("minutes", "left"),
    [
        (None, 80 * 4),
        (100.0, 80 * 4),  # the steps end first
        (5.0, 300 - 70),  # the clock ends first, and counts from the beginning of the training
        (1.0, 0),  # it is over already
    ],
)
def test_what_is_left_is_the_steps_or_the_clocks(minutes, left):
    assert PACE.left(TrainConfig(max_steps=100, max_minutes=minutes), STEP, SECONDS) == pytest.approx(left)


def test_before_the_first_step_nothing_is_known():
    assert PACE.left(TrainConfig(max_steps=100), 10, 30.0) is None
    assert PACE.cut_short(TrainConfig(max_steps=100, max_minutes=1.0, cooldown_steps=5), 10, 30.0) is None


@pytest.mark.parametrize(
    ("minutes", "cooldown", "says"),
    [
        (5.0, 10, "at about step 78, before the cooldown begins, the last 10 of train.max_steps = 100"),  # 230 s more
        (5.0, 40, "at about step 78, within the cooldown, the last 40 of"),
        (6.2, 40, None),  # 75.5 steps more: by step 96 the rate has as good as fallen
        (100.0, 40, None),
        (None, 40, None),
        (5.0, 0, None),
    ],
)
def test_a_cooldown_that_the_clock_cuts_short(minutes, cooldown, says):
    said = PACE.cut_short(TrainConfig(max_steps=100, max_minutes=minutes, cooldown_steps=cooldown), STEP, SECONDS)
    assert (said is None) == (says is None)
    if said and says:
        assert says in said
        assert "Raise train.max_minutes, or stop and --resume with fewer train.max_steps (about 70)" in said


def test_a_speed_is_known_after_a_minute_or_a_twentieth_of_the_time():
    long, short = TrainConfig(max_minutes=100.0), TrainConfig(max_minutes=10.0)
    assert [PACE.is_known(long, seconds) for seconds in (89.0, 91.0)] == [False, True]  # since 30 s
    assert [PACE.is_known(short, seconds) for seconds in (59.0, 61.0)] == [False, True]
    assert not PACE.is_known(TrainConfig(), 1e6)
