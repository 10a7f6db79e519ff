"""The files of deploy/, each held to its own validator where that is installed."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = [DEPLOY / name for name in ("node.sh", "ssh.sh", "train.sbatch")]
CLUSTER = [DEPLOY / "kubernetes-train.yaml", DEPLOY / "kubernetes-translate.yaml"]


def _tool(name: str) -> str:
    """A program of this environment or the system."""
    own = Path(sys.executable).with_name(name)
    path = str(own) if own.exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"wants {name}")
    return path


def _validate(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_to_the_shell(path):
    _validate(_tool("bash"), "-n", str(path))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
    _validate(_tool("shellcheck"), "--shell", "bash", str(path))


def test_slurm_reads_the_job():
    sbatch = _tool("sbatch")
    if subprocess.run([_tool("sinfo")], capture_output=True, check=False).returncode:
        pytest.skip("wants a Slurm that answers")
    _validate(sbatch, "--test-only", "--nodes=1", "--gpus-per-node=0", "--cpus-per-task=1", str(SCRIPTS[2]), "run.toml")


@pytest.mark.parametrize("path", CLUSTER, ids=lambda path: path.name)
def test_kubernetes_objects_are_of_their_schema(path):
    yaml = pytest.importorskip("yaml")
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ImportError:
        pytest.skip("wants kubernetes-validate")
    version = validator.latest_version()
    for each in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        validator.validate(each, version, strict=True)


def test_pods_of_the_training_agree_with_what_torchrun_is_told():
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all(CLUSTER[0].read_text(encoding="utf-8"))
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    (container,) = pod["containers"]
    given = get_args_parser().parse_args(container["args"])
    assert given.nnodes == str(job["spec"]["completions"]) == str(job["spec"]["parallelism"])
    assert given.nproc_per_node == container["resources"]["limits"]["nvidia.com/gpu"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert given.rdzv_endpoint == f"{name}-0.{pod['subdomain']}:{service['spec']['ports'][0]['port']}"
    assert given.module
    assert given.training_script_args[0] == "train"
    assert "--resume" in given.training_script_args


def test_hadolint_finds_nothing():
    _validate(_tool("hadolint"), str(DEPLOY / "Containerfile"))


def test_a_container_runs_as_an_ordinary_user_and_in_exec_form():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM .* AS (\w+)$", text, re.MULTILINE) == ["build", "verbs", "serve"]
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    assert text.index("USER 10001") < text.index("ENTRYPOINT")
    assert re.findall(r"^ *(?:ENTRYPOINT|CMD) (?!\[)", text, re.MULTILINE) == []
    assert text.count("-c constraints.txt") == text.count("pip install") == 2


def test_ssh_begins_every_machine_with_its_part(tmp_path):
    for name, text in {
        "ssh": f"while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done\n"
        f'echo "$1" >>"{tmp_path}/hosts"; shift; exec bash -c "$*"',
        "python": f'printf "%s " "$FIRST" "$NODES" "${{@: -5}}" >>"{tmp_path}/$$"\nexit "${{STATUS:-0}}"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": f"{tmp_path}/python"}
    command = [str(DEPLOY / "ssh.sh"), "one two three", "a run.toml", "--out", "there"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "hosts").read_text().split()) == ["one", "three", "two"]
    said = [path.read_text() for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert said == ["one 3 train a run.toml --out there --resume "] * 3


def test_ssh_without_machines_says_how(tmp_path):
    done = subprocess.run([str(DEPLOY / "ssh.sh"), "one"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr
