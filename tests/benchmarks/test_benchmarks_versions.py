"""The parts of the table of versions that can be tried without an installation, which takes minutes for each pair."""

import sys
from pathlib import Path

import pytest

from benchmarks.versions import (
    STEPS,
    Environment,
    Pair,
    StepError,
    find_python,
    last_words,
    loosen,
    table,
    without_cuda,
)

SEVEN = dict.fromkeys(STEPS, 1.0)


def test_constraints_leave_torch_open_and_nothing_else():
    assert (
        loosen("# pins\nnumpy==2.4.6\ntorch==2.13.0\ntorchmetrics==1.0\n")
        == "# pins\nnumpy==2.4.6\ntorchmetrics==1.0\n"
    )


def test_what_is_not_needed_without_a_gpu_is_left_out():
    asked = [
        "torch>=2.11",
        "torch-geometric",
        "sympy>=1.13.3",
        "nvidia-nccl-cu13==2.30.7",
        "cuda-bindings<14",
        "triton==3.9",
        "",
    ]
    assert without_cuda(asked) == ["torch-geometric", "sympy>=1.13.3"]


def test_the_last_words_of_a_command_are_no_notice():
    assert last_words("a\n  485 passed in 3s \n\n[notice] a new pip\n") == "485 passed in 3s"
    assert last_words("\n") == ""


def test_the_table_says_how_far_a_pair_came_and_why_no_farther():
    lines = table(
        [
            Pair("3.11-2.15.0", "3.11.7", "2.15.0", "done", "485 passed in 61.2s (0:01:01)", "yes", SEVEN),
            Pair(
                "3.12-2.15.0", "3.12.1", "2.15.0", "failed", "train: error: a | b", "no", {"install": 60, "doctor": 60}
            ),
            Pair("3.15-2.15.0", "3.15", "2.15.0", "not to be had", "no such interpreter"),
        ]
    )
    assert lines[2] == "| 3.11.7 | 2.15.0 | yes | ok | ok | ok | ok | ok | 485 passed |"
    assert lines[3] == "| 3.12.1 | 2.15.0 | no | ok | failed: train: error: a \\| b |  |  |  |  |"
    assert lines[4] == "| 3.15 | 2.15.0 |  | not to be had: no such interpreter |  |  |  |  |  |"
    assert {line.count("|") - line.count("\\|") for line in lines} == {10}


def test_interpreters_are_found_by_path_and_missing_ones_are_none():
    assert find_python(sys.executable) == (Path(sys.executable), "{}.{}".format(*sys.version_info))
    assert find_python("9.97") == (None, "9.97")
    assert find_python("/nowhere/bin/python9.97") == (None, "9.97")


def test_a_command_that_fails_ends_with_its_last_words_and_all_of_them_are_in_the_log(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    environment = Environment(tmp_path, {"SAID": "why"}, tmp_path / "log")
    with pytest.raises(StepError, match=r"^why$"):
        environment.run("python", "-c", "import os; print('first'); raise SystemExit(os.environ['SAID'])")
    assert "first\n" in (tmp_path / "log").read_text(encoding="utf-8")
