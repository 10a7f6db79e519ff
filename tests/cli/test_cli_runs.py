"""The verbs that make something: prepare and train, each once as a process and then from inside."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.cli import main
from transduce.cli.train import _describe_best
from transduce.training import Progress
from transduce.workflows.run_directory import hold

pytest_plugins = ["tiny_run"]

COMMAND = [str(Path(sys.executable).with_name("transduce"))]
SHORT = [
    *("--set", "train.max_steps=4"),
    *("--set", "train.validate_every=4"),
    *("--set", "train.checkpoint_every=2"),
    *("--set", "train.log_every=2"),
]


@pytest.mark.slow  # tests/cli/test_readme.py goes the same way
def test_prepare_then_train_as_processes(tiny_run_file, tmp_path):
    """Without ``--out`` the run directory is ``runs/NAME`` in the working folder."""
    prepare = subprocess.run(
        [*COMMAND, "prepare", str(tiny_run_file)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (prepare.returncode, prepare.stderr) == (0, "")
    assert "train.src: 211 of 211 pairs kept; 3.4 source and 3.4 target tokens each\n" in prepare.stdout
    train = subprocess.run(
        [*COMMAND, "train", str(tiny_run_file), *SHORT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert train.returncode == 0
    assert train.stdout.startswith("runs/tiny: step 4, best at step 4 (")
    assert train.stdout.count("\n") == 1
    assert "step 4  dev loss" in train.stderr
    assert (tmp_path / "runs" / "tiny" / "best" / "config.json").is_file()


def test_train_without_a_terminal_reports_line_by_line(tiny_run_file, tmp_path, capsys):
    assert main._run(["train", str(tiny_run_file), "--out", str(tmp_path / "run"), *SHORT]) == 0
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.err.splitlines() if line.startswith("step")] == [
        ["step", "2"],
        ["step", "4"],
        ["step", "4"],  # dev
    ]
    assert "\x1b" not in shown.err


def test_prepare_again_says_that_nothing_has_changed(tiny_run_file, tmp_path, capsys):
    arguments = ["prepare", str(tiny_run_file), "--out", str(tmp_path)]
    assert main._run(arguments) == 0
    report = capsys.readouterr().out
    assert main._run(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path}: prepared already, nothing has changed\n{report}"


def test_train_twice_is_refused_and_resume_goes_on(tiny_run_file, tmp_path, capsys):
    arguments = ["train", str(tiny_run_file), "--out", str(tmp_path / "run"), *SHORT]
    assert main._run([*arguments, "--set", "train.max_steps=2"]) == 0
    capsys.readouterr()
    assert main._run(arguments) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.startswith(f"error: {tmp_path / 'run'}: holds a training at step 2: --resume")
    assert main._run([*arguments, "--resume"]) == 0
    assert "step 4" in capsys.readouterr().out
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 2, 4, 4]


def test_a_run_directorys_own_file_resumes_it(tiny_run_file, tmp_path, capsys):
    root = tmp_path / "run"
    assert main._run(["train", str(tiny_run_file), "--out", str(root), *SHORT]) == 0
    assert main._run(["train", str(root / "run.toml"), "--resume", "--set", "train.max_steps=6"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{root}: step 6")


def test_a_training_that_was_never_validated_can_be_resumed_to_where_it_stands(tiny_run_file, tmp_path, capsys):
    """Interrupted after its first checkpoint and then given that step as its last, it has no best model yet."""
    root = tmp_path / "run"
    assert main._run(["train", str(tiny_run_file), "--out", str(root), *SHORT]) == 0
    shutil.rmtree(root / "checkpoints" / "step-4")
    shutil.rmtree(root / "best")
    capsys.readouterr()
    arguments = ["train", str(tiny_run_file), "--out", str(root), *SHORT, "--set", "train.max_steps=2", "--resume"]
    assert main._run(arguments) == 0
    assert capsys.readouterr().out.startswith(f"{root}: step 2")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prepare", "missing.toml"], "missing.toml: no such run file"),
        (["train", "{run}", "--set", "train.max_step=3"], "train.max_step"),
        (["train", "{run}", "--set", "train.max_steps=0"], "train.max_steps"),
        (["train", "{run}", "--set", "train.max_steps"], "key=value"),
        (["train", "{run}", "--set", "data.root=nowhere"], "nowhere"),
        (["train", "{run}", "--set", "train.batch_tokens=3"], "train.batch_tokens = 3"),
    ],
)
def test_bad_input_is_named(tiny_run_file, tmp_path, capsys, arguments, named):
    filled = [argument.format(run=tiny_run_file) for argument in arguments]
    assert main._run([*filled, "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1].startswith("error: ")
    assert named in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err


def test_a_training_that_ended_before_its_first_step_began_with_no_model():
    """As where a stream had nothing for it until the clock ended it."""
    progress = Progress(best_score=0.0, best_step=0, best_metric="bleu")
    assert _describe_best(progress) == "best at step 0 (dev BLEU 0.00): new weights; nothing became better"


def test_nothing_is_prepared_under_a_training(tiny_run_file, tmp_path, capsys):
    pytest.importorskip("fcntl", reason="Windows has no such locks")
    with hold(tmp_path / "run"):
        assert main._run(["prepare", str(tiny_run_file), "--out", str(tmp_path / "run")]) == 2
    assert "another process trains here at this moment, or prepares: wait" in capsys.readouterr().err
    assert main._run(["prepare", str(tiny_run_file), "--out", str(tmp_path / "run")]) == 0
