"""Signals to a training: as a process manager or a person at the keyboard sends them."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.command import run, start
from transduce.training import list_checkpoints, read_progress

pytest_plugins = ["tiny_run"]


@pytest.fixture(scope="module")
def train(tiny_run_file):
    def command(root, steps, *more):
        settings = {"max_steps": steps, "validate_every": 100, "checkpoint_every": 100, "log_every": 1} | dict(more)
        return [
            "train",
            str(tiny_run_file),
            *("--out", str(root), "--resume"),
            *(f"--set=train.{key}={value}" for key, value in settings.items()),
        ]

    return command


def wait_for(said, text, process):
    """Until the process has said it."""
    for _ in range(6000):
        if said.exists() and text in said.read_text():
            return
        assert process.exitcode is None, said.read_text()
        time.sleep(0.01)
    raise AssertionError(said.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_writes_a_checkpoint_and_going_on_changes_nothing(train, tmp_path, number):
    said, root, endless = tmp_path / "said", tmp_path / "run", 10**6
    process = start(train(root, endless), said)
    wait_for(said, "step 3 ", process)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 128 + number == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    [(step, path)] = list_checkpoints(root / "checkpoints")
    assert f"error: stopped by {number.name}: {path} is written, --resume goes on from there\n" in said.read_text()
    assert read_progress(path).asked
    # Five steps more, against as many in one go.
    shutil.copytree(root, tmp_path / "whole", ignore=shutil.ignore_patterns("checkpoints", "metrics.jsonl", "best"))
    for folder in (root, tmp_path / "whole"):
        assert run(train(folder, step + 5), said) == 0, said.read_text()
    ends = [folder / "checkpoints" / f"step-{step + 5}" for folder in (root, tmp_path / "whole")]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (ends[0] / name).read_bytes() == (ends[1] / name).read_bytes()
    assert [path.name for path in (root / "checkpoints").iterdir()] == [ends[0].name]  # what was asked for is gone


def test_sigusr1_writes_a_checkpoint_and_the_training_goes_on(train, tmp_path):
    said, root = tmp_path / "said", tmp_path / "run"
    process = start(train(root, 10**6), said)
    wait_for(said, "step 3 ", process)
    os.kill(process.pid, signal.SIGUSR1)
    wait_for(said, "checkpoint written", process)
    [(step, _)] = list_checkpoints(root / "checkpoints")
    wait_for(said, f"step {step + 2} ", process)
    process.kill()
    process.join()


def test_a_stop_while_dev_is_translated_leaves_that_for_later(train, tmp_path):
    said, root = tmp_path / "said", tmp_path / "run"
    # Translating dev with what one step has learned takes far longer than the step.
    process = start(train(root, 2, ("validate_every", 1), ("average_last", 2)), said)
    wait_for(said, "step 1  loss", process)
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    assert process.exitcode == 143
    [(step, path)] = list_checkpoints(root / "checkpoints")
    assert (step, read_progress(path).unvalidated) == (1, True)
    assert run(train(root, 2, ("validate_every", 1), ("average_last", 2)), said) == 0
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["split"]) for line in lines] == [(1, "train"), (1, "dev"), (2, "train"), (2, "dev")]


def test_a_second_signal_ends_it_at_once(train, tmp_path):
    said, root = tmp_path / "said", tmp_path / "run"
    process = start(train(root, 10**6), said, root / "checkpoints", "hang", 1)
    wait_for(said, "step 3 ", process)
    os.kill(process.pid, signal.SIGTERM)
    wait_for(said, "SIGTERM: stopping after this step", process)
    os.kill(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode == -signal.SIGINT  # which a shell calls 130
    assert list_checkpoints(root / "checkpoints") == []


def test_a_stop_before_the_first_step_has_nothing_to_write(tmp_path):
    said, root, run_file = tmp_path / "said", tmp_path / "run", tmp_path / "long.toml"
    corpora = ('train = { made_up = "copy", count = 100_000_000 }', 'dev = { made_up = "copy", count = 10, seed = 2 }')
    run_file.write_text("\n".join(["[data]", *corpora]))
    process = start(["train", str(run_file), "--out", str(root)], said)
    while not (root / "store").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 143
    assert said.read_text() == "SIGTERM: stopping\nerror: stopped by SIGTERM: no step is trained yet\n"


def test_what_verify_resume_began_ends_with_it(tiny_run_file, tmp_path):
    said, out = tmp_path / "said", tmp_path / "runs"
    process = start(["verify-resume", str(tiny_run_file), "--out", str(out / "run"), "--steps", "100000"], said)
    while not [*out.glob("*/whole/metrics.jsonl")]:
        assert process.exitcode is None, said.read_text()
        time.sleep(0.01)
    began = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    trainings = [Path("/proc") / child for child in began.read_text().split()] if began.exists() else []
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    assert process.exitcode == 143
    assert said.read_text().endswith("SIGTERM: stopping\nerror: stopped by SIGTERM: nothing is kept of it\n")
    assert list(out.iterdir()) == []
    deadline = time.monotonic() + 30
    while any(each.exists() for each in trainings):
        assert time.monotonic() < deadline
        time.sleep(0.05)
