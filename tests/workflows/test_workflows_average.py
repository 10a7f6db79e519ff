"""The mean of checkpoints, and which of them are in it."""

import json
import shutil

import pytest

from transduce.config import BadInputError
from transduce.training import list_checkpoints
from transduce.workflows.average import average
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]


@pytest.fixture
def run(trained_run, tmp_path):
    """A run whose newest checkpoint is one that a signal asked for."""
    shutil.copytree(trained_run, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    newest, path = list_checkpoints(run.checkpoints)[-1]
    asked = run.checkpoints / f"step-{newest + 1}"
    shutil.copytree(path, asked)
    state = json.loads((asked / "state.json").read_text())
    (asked / "state.json").write_text(json.dumps(state | {"step": newest + 1, "asked": True}))
    return run


def test_a_checkpoint_that_a_signal_asked_for_is_in_no_mean(run, tmp_path):
    *regular, asked = [step for step, _ in list_checkpoints(run.checkpoints)]
    assert average(run, 2, tmp_path / "two") == regular[-2:]
    assert average(run, 1, tmp_path / "one") == [asked]
    with pytest.raises(BadInputError, match=f"has {len(regular)} checkpoints .*: ask for {len(regular)} or fewer"):
        average(run, len(regular) + 1, tmp_path / "more")
