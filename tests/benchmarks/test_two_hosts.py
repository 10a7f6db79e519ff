"""Two hosts, one of which is cut off: the proof and what it is made of; and the script that runs on each host."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks import two_hosts
from benchmarks.two_hosts import LAST_STEP, Outcome, find_differences, make_network, show, train, why_not, write_run

NODE = Path(__file__).parents[2] / "deploy" / "node.sh"


@pytest.mark.slow
def test_a_host_that_is_cut_off_in_a_step_and_comes_back_changes_nothing(tmp_path):
    if (why := why_not()) is not None:
        pytest.skip(why)
    run_file = write_run(tmp_path)
    with make_network() as network:
        train(network, run_file, tmp_path / "whole", None)
        outcome = train(network, run_file, tmp_path / "cut", 20)
    assert find_differences(tmp_path / "whole", tmp_path / "cut") == []
    assert outcome.went_on_from % 20 == 0
    assert outcome.went_on_from < outcome.stood_at < LAST_STEP


def _write_training(folder, weights, seconds, loss=2.5):
    last = folder / "checkpoints" / f"step-{LAST_STEP}"
    last.mkdir(parents=True)
    (last / "model.safetensors").write_bytes(weights)
    (last / "optimizer.safetensors").write_bytes(b"moments")
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 20, "loss": loss, "seconds": seconds}) + "\n")


def test_trainings_differ_by_weights_and_measurements_but_not_by_time(tmp_path):
    _write_training(tmp_path / "one", b"weights", 3)
    _write_training(tmp_path / "slower", b"weights", 5)
    _write_training(tmp_path / "other", b"weight5", 3, loss=2.6)
    assert find_differences(tmp_path / "one", tmp_path / "slower") == []
    different = [f"checkpoints/step-{LAST_STEP}/model.safetensors", "metrics.jsonl"]
    assert find_differences(tmp_path / "one", tmp_path / "other") == different


def test_the_table_names_the_step_and_the_checkpoint():
    cut = Outcome(149.2, noticed=12.3, cut=30.1, again=25.4, stood_at=61, went_on_from=60, begun_again=1)
    lines = show(Outcome(82.4), cut)
    assert "| in the middle of step | | 61 |" in lines
    assert "| from step | | 60 |" in lines
    assert f"| {LAST_STEP} steps, with all starts | 82 s | 149 s |" in lines


def test_a_system_without_namespaces_is_named(monkeypatch):
    monkeypatch.setattr(two_hosts.shutil, "which", lambda _: None)
    assert why_not() == "wants Linux and iproute2"


def _python(folder: Path, text: str) -> str:
    """What node.sh takes for Python: a script that appends its arguments to a file, and then does as given."""
    path = folder / "python"
    path.write_text(f'#!/bin/bash\necho "$@" >>"{folder}/calls"\n{text}\n')
    path.chmod(0o755)
    return str(path)


def _node(folder: Path, text: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    given = {"FIRST": "10.77.0.1", "NODES": "2", "PROCESSES": "1", "PAUSE": "0", "PYTHON": _python(folder, text)}
    command = [str(NODE), *arguments]
    return subprocess.Popen(command, env=os.environ | given | variables, stderr=subprocess.PIPE, text=True)


def test_a_torchrun_that_fails_is_begun_again(tmp_path):
    node = _node(tmp_path, f'(( $(wc -l <"{tmp_path}/calls") == 3 )) || exit 7', "a run.toml", "--out", "there")
    _, said = node.communicate(timeout=30)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert node.returncode == 0
    assert len(calls) == 3
    assert "--rdzv-endpoint 10.77.0.1:29400" in calls[0]
    assert calls[0].endswith("-m transduce train a run.toml --out there --resume")
    assert said.count("torchrun ended with status 7: beginning again") == 2


def test_a_torchrun_that_always_fails_is_given_up(tmp_path):
    node = _node(tmp_path, "exit 7", "run.toml", TRIES="2")
    node.communicate(timeout=30)
    assert node.returncode == 7
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_signal_reaches_torchrun_which_ends_in_its_own_time_and_is_not_begun_again(tmp_path):
    # Without the loop, the shell would hear the signal only when its child has ended.
    text = f'trap "sleep 0.3; echo checkpoint >>{tmp_path}/written; exit 1" TERM\nwhile :; do sleep 0.05; done'
    node = _node(tmp_path, text, "run.toml")
    while not (tmp_path / "calls").exists():
        time.sleep(0.01)
    time.sleep(0.2)  # until the trap is set
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=30)
    assert node.returncode != 0
    assert (tmp_path / "written").read_text() == "checkpoint\n"
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("variables", [{"FIRST": ""}, {"NODES": ""}])
def test_what_node_cannot_do_without_is_asked_for(tmp_path, variables):
    node = _node(tmp_path, "exit 0", "run.toml", **variables)
    _, said = node.communicate(timeout=30)
    assert node.returncode != 0
    assert "all meet" in said or "number of machines" in said
    assert not (tmp_path / "calls").exists()
