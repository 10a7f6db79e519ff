"""``torchrun ... -m transduce train``: what a user types, and what a launcher does when a process dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run", "together"]

SETTINGS = (
    "train.max_steps=20",
    "train.validate_every=10",
    "train.checkpoint_every=5",
    "train.log_every=5",
    "train.keep_checkpoints=50",
    "train.hang_minutes=1",
    "model.dropout=0",
)


def _train(run_file: Path, out: Path) -> list[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return ["train", str(run_file), "--out", str(out), "--resume", *settings]


def _train_to_the_end(run_file: Path, out: Path) -> None:
    assert main._run(_train(run_file, out)) == 0


def _torchrun(run_file: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    command = [*torchrun, "-m", "transduce", *_train(run_file, out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _kill_the_second(launcher: subprocess.Popen[str], out: Path) -> None:
    """When a checkpoint is there, and the last one is not."""
    while not (out / "checkpoints" / "step-5").exists():
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.005)
    # The kernel may list them in any order: the first one's rank is 0.
    workers = {Path(f"/proc/{child}/environ").read_bytes(): child for child in _children(launcher.pid)}
    (second,) = (child for environment, child in workers.items() if b"\0RANK=1\0" in b"\0" + environment)
    os.kill(second, signal.SIGKILL)


def _metrics(out: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.slow  # tests/faults/test_faults_together.py kills processes without torchrun
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes as Linux lists them")
def test_a_killed_process_ends_the_other_and_torchrun_goes_on_from_the_last_checkpoint(
    tiny_run_file, tmp_path, run_together
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_together(2, tmp_path / "logs", _train_to_the_end, tiny_run_file, whole)

    restarted = _torchrun(tiny_run_file, killed, "--max-restarts", "1")
    _kill_the_second(restarted, killed)
    output, errors = restarted.communicate(timeout=300)
    assert restarted.returncode == 0, errors
    assert output.startswith(f"{killed}: step 20, best at step")  # the first process alone says it
    assert output.count("\n") == 1
    assert errors.count("starting at step 0 on cpu in float32, 2 processes") == 1
    assert "going on from step" in errors
    for name in ("model", "optimizer"):
        last = f"checkpoints/step-20/{name}.safetensors"
        assert (killed / last).read_bytes() == (whole / last).read_bytes()
    assert _metrics(killed) == _metrics(whole)
