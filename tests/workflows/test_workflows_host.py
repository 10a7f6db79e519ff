"""A library leaves the process that it is used in as it is; the command line, whose process is its own, need not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from transduce.cli.main import _run
from transduce.training import put_back

pytest_plugins = ["tiny_run"]


@pytest.fixture(scope="module")
def found(trained_run, tiny_run_file, tmp_path_factory):
    """What is otherwise behind a program that has trained, translated and evaluated with the library."""
    program, out = Path(__file__).with_name("host.py"), tmp_path_factory.mktemp("host") / "run"
    ended = subprocess.run(
        [sys.executable, program, trained_run, tiny_run_file, out],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("use", ["translating", "training"])
def test_a_program_that_uses_it_is_as_it_was(found, use):
    assert found[use] == {}


def test_its_memory_is_the_programs_to_keep_or_give_back(found):
    before, after = found["pages"]
    assert after > before / 3


@pytest.mark.parametrize("arguments", [["train", "RUN", "--out", "OUT", "--set", "train.max_steps=1"]])
def test_the_command_line_keeps_freed_memory(arguments, tiny_run_file, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("transduce.training.loop.keep_freed_memory", lambda: told.append(True))
    names = {"RUN": str(tiny_run_file), "OUT": str(tmp_path / "run")}
    assert _run([names.get(each, each) for each in arguments]) == 0
    assert told == [True]


def test_generators_go_on_where_they_were():
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    with put_back(torch.device("cpu")):
        torch.manual_seed(7)
        torch.rand(11)
    assert torch.equal(torch.rand(5), expected)
