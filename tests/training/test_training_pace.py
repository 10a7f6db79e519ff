"""How long a training still takes. Ten steps since step 10 took 40 seconds; there are 100."""

import pytest

from transduce.config import TrainConfig
from transduce.training.progress import Pace, Progress, ended_within_warmup

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
    config = TrainConfig(max_steps=100, max_minutes=minutes, cooldown_steps=cooldown, warmup_steps=5)
    said = PACE.cut_short(config, STEP, SECONDS)
    assert (said is None) == (says is None)
    if said and says:
        assert says in said
        assert "Raise train.max_minutes, or stop and --resume with fewer train.max_steps (about 70)" in said


def test_a_speed_is_known_after_a_minute_or_a_twentieth_of_the_time():
    long, short = TrainConfig(max_minutes=100.0), TrainConfig(max_minutes=10.0)
    assert [PACE.is_known(long, seconds) for seconds in (89.0, 91.0)] == [False, True]  # since 30 s
    assert [PACE.is_known(short, seconds) for seconds in (59.0, 61.0)] == [False, True]
    assert not PACE.is_known(TrainConfig(), 1e6)


@pytest.mark.parametrize(
    ("minutes", "warmup", "says"),
    [(5.0, 79, "at about step 78, within the warm-up of train.warmup_steps = 79"), (5.0, 78, None), (100.0, 79, None)],
)
def test_a_warm_up_that_the_clock_cuts_short(minutes, warmup, says):
    said = PACE.cut_short(TrainConfig(max_steps=100, max_minutes=minutes, warmup_steps=warmup), STEP, SECONDS)
    assert (said is None) == (says is None)
    if said and says:
        assert says in said
        assert "Raise train.max_minutes (--resume goes on), or begin anew with fewer train.warmup_steps" in said


@pytest.mark.parametrize(
    ("settings", "step", "says"),
    [
        ({}, 59, "at step 59 of train.warmup_steps = 60"),
        ({}, 60, None),
        ({"max_steps": 59}, 59, None),  # which was said before it began
        ({"max_minutes": 2.0}, 59, None),  # something else has ended it
    ],
)
def test_a_training_that_the_clock_ended_within_its_warm_up(settings, step, says):
    config = TrainConfig(**{"max_steps": 100, "warmup_steps": 60, "max_minutes": 1.0, **settings})
    said = ended_within_warmup(config, Progress(step=step, seconds=60.0))
    assert (said is None) == (says is None)
    if said and says:
        assert says in said
        assert "(a tenth of the steps is usual: 5)" in said
