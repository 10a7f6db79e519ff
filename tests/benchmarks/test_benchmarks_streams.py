"""That starts and memory of the command ``translate`` are measured, and what counts as flat."""

import math
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import made_up_model, streams
from benchmarks.streaming.memory import Course

pytest_plugins = ["tiny_run"]


@pytest.mark.slow  # each command in a process of its own
def test_a_quick_run(trained_run, tmp_path, monkeypatch, capsys):
    (tmp_path / "in").write_text("bamo dulu kari\nwemo\n\nluso gozu fepi\n")
    test = f"made up={trained_run},{tmp_path}/in"
    monkeypatch.setattr("sys.argv", ["", test, "--quick", "--lines", "101", "--out", str(tmp_path / "out.md")])
    # So few lines say nothing about memory.
    monkeypatch.setattr(streams, "FLAT", math.inf)
    streams.main()
    page = (tmp_path / "out.md").read_text()
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    assert page.count("made up: from the start") == page.count(": from the start") == 1
    started = {}
    for program, first, most, resident in (row for row in rows if row[0].startswith(("transduce", "CTranslate2"))):
        assert 0 < float(first) <= float(most)
        assert float(resident) > 30  # Python and a runtime
        started.setdefault(program, []).append(float(first))
    assert {program: len(each) for program, each in started.items()} == dict.fromkeys(started, 1)
    assert {"transduce", "transduce --cache"} <= set(started)
    assert min(started["transduce"]) > 0.3  # nobody imports torch in less
    assert page.count("import of torch") == 1
    assert [row[1] for row in rows if row[0].endswith("%")] == ["5", "25", "50", "76", "101"]
    assert float(rows[-1][2]) > 50  # with torch; the first looks find the process before its imports
    assert "made up: 101 lines" in page
    assert "made up: 101 lines" in capsys.readouterr().out


def test_a_model_of_random_weights_comes_first_where_a_size_is_given(trained_run, monkeypatch):
    monkeypatch.setattr(made_up_model, "WORDS", 1_000)
    monkeypatch.setattr(streams, "measure_starts", lambda model, text, starts: (model.name, text, starts))
    options = Namespace(size="tiny", vocabulary=500, starts=2)
    found = streams.measure_models([("made up", trained_run, ["wemo", "luso"])], options)
    assert list(found) == ["tiny, random weights, 500 symbols", "made up"]
    assert found["made up"] == ("made up", "wemo", 2)
    assert len(found["tiny, random weights, 500 symbols"][1].split()) > 1


def test_growth_is_the_last_quarters_beyond_the_seconds():
    samples = [(0, 10), (10, 500), (30, 100), (40, 200), (50, 300), (70, 900), (80, 220), (90, 210), (100, 300)]
    course = Course(100, 9.0, samples)
    assert [course.at(share) for share in (0.05, 0.25, 0.5, 0.75, 1.0)] in (
        [10, 100, 300, 900, 300],
        [500, 100, 300, 900, 300],
    )
    assert course.growth == pytest.approx(220 / 200 - 1)


def test_a_command_that_fails_is_no_figure():
    with pytest.raises(RuntimeError, match="status 2, 0 lines of 3"):
        streams.follow(Path("--nothing"), ["a"], 3, 0.1)  # no such option: that is told before torch is imported
