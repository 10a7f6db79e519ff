import math

import pytest

from transduce.cli import main
from transduce.cli.reproduce import _read_rows, _read_time
from transduce.config import SYSTEMS, VARIATIONS

pytest_plugins = ["tiny_run"]


@pytest.fixture
def called(monkeypatch):
    """What the verb asks its workflow for."""
    calls = []
    monkeypatch.setattr("transduce.lab.table3_trainings.reproduce_table3", lambda *given: calls.append(given))
    return calls


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("0.5h", 1800), (" 1h1m1s ", 3661)],
)
def test_times(text, seconds):
    assert _read_time(text) == seconds


def test_without_a_budget_there_is_no_end():
    assert _read_time(None) == math.inf


def test_rows_are_named_by_preset_or_part_and_come_in_the_table_s_order():
    assert [row.preset for row in _read_rows("big, B,table3-a-h4")] == [
        *("table3-a-h4", "table3-b-dk16", "table3-b-dk32", "big"),
    ]


def test_all_rows_are_the_default(called, tiny_run_file):
    assert main._run(["reproduce", "table3", "--data", str(tiny_run_file.parent)]) == 0
    [(plan, out, _, budget)] = called
    assert (tuple(plan.rows), plan.seeds, plan.steps, plan.jobs, plan.device) == (VARIATIONS, 3, None, 1, None)
    assert (str(out), budget) == ("runs/table3", math.inf)
    assert (plan.data.train[0].source, plan.data.dev.target) == ("train.src", "dev.trg")


def test_options_reach_the_plan(called, tiny_run_file, tmp_path):
    options = [
        "--budget",
        "3m",
        "--out",
        str(tmp_path),
        "--seeds",
        "2",
        "--rows",
        "C",
        "--steps",
        "20",
        "--norm",
        "pre",
        "--peak-rate",
        "0.002",
        "--jobs",
        "5",
        "--device",
        "cpu",
    ]
    languages = ["--source-language", "trg", "--target-language", "src"]
    assert main._run(["reproduce", "table3", "--data", str(tiny_run_file.parent), *options, *languages]) == 0
    [(plan, out, _, budget)] = called
    assert (len(plan.rows), plan.seeds, plan.steps, out, budget) == (7, 2, 20, tmp_path, 180)
    assert (plan.norm, plan.peak_rate, plan.jobs, plan.device) == ("pre", 0.002, 5, "cpu")
    assert plan.data.train[0].source == "train.trg"


def test_the_whole_way(tiny_run_file, tmp_path, capsys):
    options = ["--out", str(tmp_path / "out"), "--seeds", "1", "--rows", "base", "--steps", "2"]
    assert main._run(["reproduce", "table3", "--data", str(tiny_run_file.parent), *options]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == f"{tmp_path / 'out' / 'table3.md'}: 1 of 1 trainings"
    assert "training 1 of 1: base-seed1\nperplexity " in shown.out
    assert "step 2  dev loss" in shown.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--budget", "45"], "--budget 45: give a time with its unit"),
        (["--budget", "soon"], "--budget soon"),
        (["--budget", "0h"], "--budget 0h"),
        (["--budget", "1.2.3h"], "--budget 1.2.3h"),
        (["--budget", ""], "--budget : give"),
        (["--rows", "base,F"], "--rows F: choose from base, A, table3-a-h1, "),
        (["--rows", ""], "--rows : choose from"),
        (["--source-language", "en"], "--source-language en"),
        (["--data", "nowhere"], "nowhere: no such folder"),
        (["--seeds", "0"], "--seeds"),
        (["--steps", "0"], "--steps"),
        (["--jobs", "0"], "--jobs"),
        (["--device", "abacus"], "device 'abacus': torch knows no such device"),
    ],
)
def test_bad_input_is_one_line_and_a_2(tiny_run_file, tmp_path, capsys, options, named):
    arguments = ["reproduce", "table3", "--data", str(tiny_run_file.parent), "--out", str(tmp_path / "out")]
    assert main._run([*arguments, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert named in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_table2_has_systems_for_rows(tiny_run_file, monkeypatch):
    calls = []
    monkeypatch.setattr("transduce.lab.table2_trainings.reproduce_table2", lambda *given: calls.append(given))
    data = ["reproduce", "table2", "--data", str(tiny_run_file.parent)]
    assert main._run([*data, "--budget", "2m", "--seeds", "2", "--jobs", "3"]) == 0
    assert main._run([*data, "--rows", "single-head", "--steps", "7"]) == 0
    [(plan, out, _, budget), (other, *_)] = calls
    assert (tuple(plan.systems), plan.seeds, plan.steps, str(out), budget) == (SYSTEMS, 2, None, "runs/table2", 120)
    assert ([system.name for system in other.systems], other.steps) == (["single-head"], 7)
    assert (plan.jobs, other.jobs) == (3, 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--rows", "base"], "--rows base: choose from transformer, bytenet, deep-att, gnmt, "),
        (["--norm", "pre"], "--norm pre: is for table3"),
        (["--peak-rate", "0.002"], "--peak-rate 0.002: is for table3"),
    ],
)
def test_what_is_table3_s_alone_is_refused(tiny_run_file, capsys, options, named):
    assert main._run(["reproduce", "table2", "--data", str(tiny_run_file.parent), *options]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["0", "-0.1", "inf", "nan"])
def test_a_rate_is_above_0(tiny_run_file, capsys, rate):
    assert main._run(["reproduce", "table3", "--data", str(tiny_run_file.parent), "--peak-rate", rate]) == 2
    assert "give a number above 0" in capsys.readouterr().err


def test_there_is_no_other_table(capsys):
    assert main._run(["reproduce", "table4", "--data", "."]) == 2
    assert "table4" in capsys.readouterr().err
