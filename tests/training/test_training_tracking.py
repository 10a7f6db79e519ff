"""What TensorBoard shows of a training, read back by its own reader."""

import math
import sys
import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transduce.config import TransduceError
from transduce.training import Report


def _report(folder, step):
    return Report(folder / "metrics.jsonl", max_steps=100, step=step, tensorboard=folder / "tensorboard")


def _train(report, step, loss, **more):
    measured = {"step": step, "split": "train", "loss": loss, "learning_rate": 0.125}
    report.train(measured | more, tokens_per_second=10.0 * step)


def _dev(report, step, loss, bleu, **more):
    report.dev({"step": step, "split": "dev", "loss": loss, "learning_rate": 0.125, "bleu": bleu} | more, best=True)


def _curves(folder):
    """Steps and values of every curve."""
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


# Halves and powers of two, which the files' 32-bit numbers hold exactly; e is rounded.
E = pytest.approx(math.e, rel=1e-6)
E2 = pytest.approx(math.e**2, rel=1e-6)


def test_every_measurement_is_on_its_curve_at_its_step(tmp_path):
    with _report(tmp_path, 0) as report:
        _train(report, 5, 2.0, gradient_norm=0.75, skipped=0)
        _train(report, 7, 1.0, skipped=2)  # all of them: there is no norm
        _dev(report, 7, 1.0, 12.5, samples=[{"source": "a", "reference": "b", "output": "c"}])
        _dev(report, 7, 2.0, 25.0, average=3)
    assert _curves(tmp_path) == {
        "loss/train": [(5, 2.0), (7, 1.0)],
        "perplexity/train": [(5, E2), (7, E)],
        "learning_rate": [(5, 0.125), (7, 0.125)],
        "tokens_per_second": [(5, 50.0), (7, 70.0)],
        "gradient_norm": [(5, 0.75)],
        "loss/dev": [(7, 1.0)],
        "perplexity/dev": [(7, E)],
        "bleu/dev": [(7, 12.5)],
        "loss/dev_mean_of_3": [(7, 2.0)],
        "perplexity/dev_mean_of_3": [(7, E2)],
        "bleu/dev_mean_of_3": [(7, 25.0)],
    }


def test_a_metric_of_one_s_own_choice_is_a_curve_too(tmp_path):
    with _report(tmp_path, 0) as report:
        _dev(report, 7, 1.0, 12.5, chrf=31.5)
    assert _curves(tmp_path)["chrf/dev"] == [(7, 31.5)]


def test_who_looks_on_sees_a_measurement_at_once(tmp_path):
    with _report(tmp_path, 0) as report:
        _train(report, 5, 2.0)
        assert _curves(tmp_path)["loss/train"] == [(5, 2.0)]


@pytest.mark.parametrize("again", [0, 6])
def test_steps_that_are_trained_again_are_drawn_once(tmp_path, again):
    """The first process dies behind step 8; the second goes on from the checkpoint at ``again``, the third from 12."""
    with _report(tmp_path, 0) as report:
        for step in (2, 4, 6, 8):
            _train(report, step, 2.0)
            _dev(report, step, 2.0, 12.5)
    with _report(tmp_path, again) as report:
        for step in range(again + 3, 13, 3):
            _train(report, step, 1.0)
    with _report(tmp_path, 12) as report:
        _train(report, 15, 0.5)
    kept = [(step, 2.0) for step in (2, 4, 6) if step <= again]
    curves = _curves(tmp_path)
    assert curves["loss/train"] == [*kept, *((step, 1.0) for step in range(again + 3, 13, 3)), (15, 0.5)]
    assert curves.get("loss/dev", []) == kept


def test_a_loss_that_is_no_number_does_not_end_the_training(tmp_path):
    with _report(tmp_path, 0) as report:
        _train(report, 5, math.nan)
        _train(report, 6, math.inf)
        _train(report, 7, 1.0)
    assert [step for step, _ in _curves(tmp_path)["perplexity/train"]] == [5, 6, 7]


def test_the_writers_thread_ends_with_the_report(tmp_path):
    before = threading.active_count()
    with _report(tmp_path, 0):
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_nothing_is_written_unasked(tmp_path):
    with Report(tmp_path / "metrics.jsonl", max_steps=10, step=0) as report:
        _train(report, 5, 2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n')
    with pytest.raises(TransduceError, match=r"train\.tensorboard.*pip install 'transduce\[track\]'"):
        _report(tmp_path, 0)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 5}\n'  # nothing has begun
