import json

import pytest

from tests.command import run

pytest_plugins = ["tiny_run"]

SETTINGS = ("train.max_steps=8", "train.log_every=1", "train.batch_tokens=1024")


def losses(path):
    return [
        (entry["split"], entry["loss"], entry.get("bleu")) for entry in map(json.loads, path.read_text().splitlines())
    ]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_losses_in_two_processes_of_two_threads(precision, tiny_run_file, tmp_path):
    found = []
    for name in ("first", "second"):
        settings = [part for setting in (*SETTINGS, f"train.precision={precision}") for part in ("--set", setting)]
        command = ["train", str(tiny_run_file), "--threads", "2", "--out", str(tmp_path / name), *settings]
        assert run(command, tmp_path / "said") == 0, (tmp_path / "said").read_text()
        found.append(losses(tmp_path / name / "metrics.jsonl"))
    first, second = found
    assert len(first) == 9
    assert first == second
