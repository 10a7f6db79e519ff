import errno
import json
import logging

import pytest

from transduce.training import Report

LINES = [json.dumps({"step": step, "loss": 1.5}) + "\n" for step in (2, 4, 6)]


def _go_on(path, step):
    with Report(path, max_steps=10, step=step) as report:
        report.train({"step": 8, "split": "train", "loss": 0.5, "learning_rate": 0.1}, tokens_per_second=7.0)
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_measurements_of_steps_to_be_trained_again_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(LINES))
    assert _go_on(path, step=4) == [2, 4, 8]


@pytest.mark.parametrize("cut", range(1, len(LINES[-1]) + 1))
def test_a_last_line_cut_anywhere_does_no_harm(tmp_path, cut):
    """A crash may leave any part of the last line; a cut of one leaves it whole but for its line feed."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(LINES)[:-cut])
    assert _go_on(path, step=6) == ([2, 4, 6, 8] if cut == 1 else [2, 4, 8])


def test_a_run_without_measurements_begins_a_file(tmp_path):
    assert _go_on(tmp_path / "metrics.jsonl", step=0) == [8]


def test_a_full_disk_on_the_way_back_is_what_is_said(tmp_path, monkeypatch):
    """The files that were let go were closed once more on the way out, and that error hid the disk's."""

    def fill_up(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    report = Report(tmp_path / "metrics.jsonl", max_steps=10, step=0)
    with pytest.raises(OSError, match="No space left"), report:
        monkeypatch.setattr("transduce.training.report.write_whole", fill_up)
        report.go_back(0)


def test_people_read_the_log_and_programs_the_file(tmp_path, caplog):
    caplog.set_level(logging.INFO, "transduce")
    measured = {"step": 5, "split": "dev", "loss": 2.0, "learning_rate": 0.1, "bleu": 12.25}
    with Report(tmp_path / "metrics.jsonl", max_steps=10, step=0) as report:
        report.train({"step": 5, "split": "train", "loss": 2.0, "learning_rate": 0.1}, tokens_per_second=1234.5)
        report.train(
            {"step": 6, "split": "train", "loss": 2.0, "learning_rate": 0.1, "busiest_expert": [1.5, 2.25, 1.0]}, 1234.5
        )
        report.dev(dict(measured), best=True)
        report.dev(measured | {"average": 3}, best=False)
        report.say("a line for people: 100% [not markup]")
    assert caplog.messages == [
        # exp(2) = 7.39.
        "step 5  loss 2.000  perplexity 7.39  1,234 tokens/s  rate 1.00e-01",
        "step 6  loss 2.000  perplexity 7.39  1,234 tokens/s  rate 1.00e-01  busiest expert 2.25 x mean",
        "step 5  dev loss 2.000  perplexity 7.39  BLEU 12.25  (best so far)",
        "step 5 (mean of 3)  dev loss 2.000  perplexity 7.39  BLEU 12.25",
        "a line for people: 100% [not markup]",
    ]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[2:] == [measured, measured | {"average": 3}]


def test_each_metric_is_shown_as_its_table_says(tmp_path, caplog):
    caplog.set_level(logging.INFO, "transduce")
    with Report(tmp_path / "metrics.jsonl", max_steps=10, step=0) as report:
        report.dev({"step": 5, "split": "dev", "loss": 2.0, "bleu": 12.25, "chrf": 31.125, "exact": 7.0}, best=False)
    assert caplog.messages == ["step 5  dev loss 2.000  perplexity 7.39  BLEU 12.25  chrF 31.12  exact match 7.00"]


def test_the_time_that_is_left_is_said_where_it_is_known(tmp_path, caplog):
    caplog.set_level(logging.INFO, "transduce")
    measured = {"step": 5, "split": "train", "loss": 2.0, "learning_rate": 0.1}
    with Report(tmp_path / "metrics.jsonl", max_steps=10, step=0) as report:
        for left in (3.6e19, 3900.0, 754.0, 41.0, None):  # the first is more than a clock can show
            report.advance(5, left)
            report.train(measured, tokens_per_second=1234.5)
    assert [message.partition("rate 1.00e-01")[2] for message in caplog.messages] == [
        "  10000000000000000 h 00 min left",
        "  1 h 05 min left",
        "  13 min left",
        "  41 s left",
        "",
    ]


def test_who_sets_up_no_logging_sees_nothing(tmp_path, capsys):
    with Report(tmp_path / "metrics.jsonl", max_steps=10, step=0) as report:
        report.dev({"step": 5, "split": "dev", "loss": 2.0, "learning_rate": 0.1}, best=True)
        report.say("a line for people")
    assert capsys.readouterr() == ("", "")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 5
