import pytest
import torch

from benchmarks import step_cost
from benchmarks.step_cost import Cost, Point, measure_all, report
from tests.command import FORKSERVER

VOCABULARY = 101


def test_a_measured_training_takes_time_and_what_all_its_parameters_need():
    point = Point("tiny", 3, 7)
    found = measure_all({"model": (point,)}, torch.float32, VOCABULARY, enough=0, start=FORKSERVER)[point]
    # 4 + 4 layers of 128/256: 4 or 8 square matrices of attention, two of feed-forward, 2 or 3 norms, one embedding.
    feed_forward = 2 * 128 * 256 + 128 + 256
    attention = 4 * (128 * 128 + 128)
    parameters = 4 * (3 * attention + 2 * feed_forward + 5 * 2 * 128) + VOCABULARY * 128
    assert found.fixed == 16 * parameters
    assert found.seconds > 0
    assert found.memory > 0


def test_the_report_by_hand():
    points = Point("tiny", 4, 25), Point("tiny", 12, 25)
    found = {points[0]: Cost(0.5, 7 * 2**20, 3 * 2**20), points[1]: Cost(0.75, 13 * 2**20, 3 * 2**20)}
    lines = report({"batch": points}, found, VOCABULARY)
    assert lines[1].startswith("The batch grows: tiny (4+4 layers of 128/256, 4 heads")
    assert lines[-2:] == ["| 100 | 500 | 200 | 7 | 4 |", "| 300 | 750 | 400 | 13 | 10 |"]


def test_all_lengths_are_of_equal_work():
    assert {point.tokens for point in step_cost.TABLES["length"]} == {8192}


@pytest.mark.slow
def test_the_whole_page(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["", "--quick", "--out", str(tmp_path / "page.md")])
    step_cost.main()
    page = (tmp_path / "page.md").read_text()
    for beginning in ("| 25 |", "| 50 |", "| 16 | 12 |", "| 32 | 6 |", "| tiny: ", "| recipe: "):
        assert page.count(beginning) == 1
