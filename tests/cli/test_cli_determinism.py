import json
import os
import subprocess
import sys

pytest_plugins = ["tiny_run"]


def losses(path):
    return [
        (entry["split"], entry["loss"], entry.get("bleu")) for entry in map(json.loads, path.read_text().splitlines())
    ]


SETTINGS = ("train.max_steps=8", "train.log_every=1", "train.batch_tokens=1024")
PRECISIONS = ("float32", "bfloat16")
# Every training in one process, as to start one takes longer than to train.
TRAIN = f"""
import sys
from transduce.cli import main
run_file, folder, *precisions = sys.argv[1:]
settings = {[part for setting in SETTINGS for part in ("--set", setting)]}
for precision in precisions:
    more = ["--set", "train.precision=" + precision, "--out", folder + "/" + precision]
    if status := main._run(["train", run_file, *settings, *more]):
        sys.exit(status)
"""


def test_the_same_seed_gives_the_same_losses_in_two_processes_of_two_threads(tiny_run_file, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    for name in ("first", "second"):
        command = [sys.executable, "-c", TRAIN, str(tiny_run_file), str(tmp_path / name), *PRECISIONS]
        subprocess.run(command, env=environment, capture_output=True, check=True)
    for precision in PRECISIONS:
        first, second = (losses(tmp_path / name / precision / "metrics.jsonl") for name in ("first", "second"))
        assert len(first) == 9
        assert first == second, precision
