import json
import os
import subprocess
import sys

import pytest

pytest_plugins = ["tiny_run"]


def losses(path):
    return [
        (entry["split"], entry["loss"], entry.get("bleu")) for entry in map(json.loads, path.read_text().splitlines())
    ]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_losses_in_two_processes_of_two_threads(tiny_run_file, tmp_path, precision):
    command = [sys.executable, "-c", "from transduce.cli.main import run; run()", "train", str(tiny_run_file)]
    settings = ["train.max_steps=8", "train.log_every=1", "train.batch_tokens=1024", f"train.precision={precision}"]
    command += [part for setting in settings for part in ("--set", setting)]
    # Threads that wait for each other sleep: all cores may be at work on other tests.
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    for name in ("first", "second"):
        subprocess.run([*command, "--out", str(tmp_path / name)], env=environment, capture_output=True, check=True)
    first, second = (losses(tmp_path / name / "metrics.jsonl") for name in ("first", "second"))
    assert len(first) == 9
    assert first == second
