import pytest
import torch

from transduce.training.health import Examined, Examiner, Health, Place

NAN, INFINITE = float("nan"), float("inf")


def at(step: int, loss: float = 4.0, norm: float = 1.0) -> Examined:
    return Examined(step, (Place(0, 0, 2 * step), Place(0, 0, 2 * step + 1)), 31, loss, norm)


def judged(losses, health=None):
    health, messages = health or Health(), []
    for number, loss in enumerate(losses):
        health, message = health.judge(at(number, loss))
        messages.append(message)
    return health, messages


@pytest.mark.parametrize("norm", [NAN, INFINITE])
def test_a_step_without_a_gradient_is_counted_and_named(norm):
    health, message = Health(skipped=4).judge(at(7, norm=norm))
    assert message == (
        f"step 7 (epoch 0 window 0 batch 14, epoch 0 window 0 batch 15): the gradient's norm is {norm}, the loss 4: "
        f"skipped, the weights stay as they are (5 so far)"
    )
    assert (health.skipped, health.in_a_row, health.lost) == (5, 1, False)


def test_a_few_in_a_row_are_too_many_and_one_that_is_well_ends_the_row():
    health = Health()
    for step, norm in enumerate((NAN, NAN, 1.0, NAN, NAN)):
        health, _ = health.judge(at(step, norm=norm))
        assert not health.lost
    health, _ = health.judge(at(5, norm=NAN))
    assert health.lost
    assert health.skipped == 5
    assert [place.batch for place in health.failing] == [6, 7, 8, 9, 10, 11]


def test_after_going_back_what_failed_is_left_out_and_the_rest_is_as_it_was():
    then = Health(usual=3.5, judged=60, excluded=())
    now = Health(skipped=5, in_a_row=3, failing=(Place(0, 0, 9),), excluded=(Place(0, 0, 1),), usual=9.0, judged=80)
    back = now.go_back(then, 40)
    assert back == Health(
        usual=3.5, judged=60, skipped=5, excluded=(Place(0, 0, 1), Place(0, 0, 9)), back_to=40, times=1
    )
    assert not back.lost


def test_going_back_to_one_checkpoint_again_and_again_is_hopeless():
    health = Health()
    for times in (1, 2, 3):
        assert not health.is_hopeless(40)
        health = health.go_back(Health(), 40)
        assert health.times == times
    assert health.is_hopeless(40)
    assert not health.is_hopeless(60)
    assert not health.go_back(Health(), 60).is_hopeless(60)


def test_a_leap_is_reported_once_and_what_lasts_becomes_usual():
    usual = [4.0, 4.2] * 30
    health, messages = judged(usual)
    assert not any(messages)
    assert health.usual == pytest.approx(4.1, abs=0.01)
    assert health.spread == pytest.approx(0.1, abs=0.03)
    health, messages = judged([4.9, 5.0, 4.1, 4.9], health)
    assert [bool(message) for message in messages] == [True, False, False, True]
    assert messages[0] == (
        "step 0 (epoch 0 window 0 batch 0, epoch 0 window 0 batch 1): loss spike: 4.900 nats per target token, "
        "where 4.100 is usual; the gradient's norm is 1. Harmless where the loss falls again; else the "
        "learning rate is too high"
    )
    leapt, _ = judged([400.0], health)
    assert leapt.usual < health.usual + 0.02  # one leap, however high, is not usual at once
    health, messages = judged([6.0] * 300, health)
    assert not health.leaping
    assert health.usual > 5.9


def test_a_loss_that_rises_above_a_uniform_guess_is_told_once():
    """Among 55 symbols, a uniform guess has ln(55) = 4.007 nats."""
    begun, _ = judged([4.2] * 60)
    assert judged([4.9] * 400, begun)[0].compare(55)[1] is None
    assert judged([5.5] * 200, begun)[0].compare(55)[1] is None  # so early, it may not have begun to learn
    health, message = judged([5.5] * 400, begun)[0].compare(55)
    assert message is not None
    assert message.startswith(
        "the loss is about 5.5 nats per target token, where it has been 4.2: a uniform guess among all 55"
    )
    assert health.compare(55) == (health, None)
    health, message = judged([3.0] * 300, health)[0].compare(55)
    assert (health.diverged, message) == (False, None)


def test_a_loss_that_begins_high_and_falls_has_not_diverged():
    """As that of a finished model on other text, or with other symbols."""
    falling, _ = judged([9.0 - step / 400 for step in range(1000)])
    assert falling.usual > 6
    assert falling.compare(55) == (falling, None)


def test_small_leaps_and_early_ones_are_none():
    assert not any(judged([10.0, 8.0, 11.0] + [7.0] * 40)[1])
    assert not any(judged([2.0] * 60 + [2.49])[1])
    assert judged([2.0] * 60 + [2.51])[1][-1]


def test_a_process_that_a_step_had_nothing_for_learns_nothing_of_what_is_usual():
    before, _ = judged([4.0, 4.3])
    health, message = before.model_copy(update={"in_a_row": 2, "failing": (Place(0, 0, 9),)}).judge(at(3, loss=NAN))
    assert (health, message) == (before, None)


def test_health_comes_back_from_its_file():
    health, _ = judged([4.0, 4.3, 3.9])
    health, _ = health.judge(at(9, norm=NAN))
    assert Health.model_validate_json(health.model_dump_json()) == health


@pytest.mark.parametrize(("behind", "seen"), [(0, [1, 2, 3]), (1, [0, 1, 2])])
def test_steps_under_way_are_read_later(behind, seen):
    examiner, counts = Examiner(behind), []
    read = []
    for step in range(3):
        examiner.add(step, (Place(0, 0, step),), 5, torch.tensor(2.0), torch.tensor(0.5))
        read += examiner.read()
        counts.append(len(read))
    assert counts == seen
    read += examiner.read(everything=True)
    assert [each.step for each in read] == [0, 1, 2]
    assert read[1] == Examined(1, (Place(0, 0, 1),), 5, 2.0, 0.5)
