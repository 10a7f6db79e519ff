"""What the processes of a training ask of each other before the first step."""

import json

import pytest

from transduce.config import BadInputError, TransduceError, read_run
from transduce.training import Processes, Progress
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import _check_alike, _prepare

pytest_plugins = ["tiny_run"]


@pytest.fixture
def second(monkeypatch):
    """The second process of two, and the words that it hears from the first one, one after another."""
    words = []
    monkeypatch.setattr(Processes, "lead", lambda *_: words.pop(0))
    return Processes(1, 2), words


def test_a_process_that_trains_something_else_is_refused(tiny_config, second):
    process, words = second
    settings, progress = tiny_config.train, Progress(step=200, fixed={"model.heads": 2})
    first = settings.model_dump(mode="json") | {"model.heads": 2, "step": 200}
    words += map(json.dumps, [first, first, first | {"step": 400}])
    _check_alike(settings, progress, process)
    with pytest.raises(BadInputError, match=r"process 1 of 2 .* precision is 'bfloat16' and 'float32' there"):
        _check_alike(settings.model_copy(update={"precision": "bfloat16"}), progress, process)
    with pytest.raises(BadInputError, match="step is 200 and 400 there"):  # it sees another checkpoint
        _check_alike(settings, progress, process)


def test_a_process_that_trains_another_kind_of_model_or_a_stream_is_refused(tiny_config, second):
    """Each of them has settings that the other one does not know."""
    process, words = second
    first = {"model.architecture": "recurrent", "model.cell": "lstm", "step": 0}
    own = Progress(fixed={"model.architecture": "transformer", "model.heads": 2, "data.streaming": True})
    words.append(json.dumps(tiny_config.train.model_dump(mode="json") | first))
    named = "model.architecture is 'transformer' and 'recurrent' there; data.streaming is True and None there: give all"
    with pytest.raises(BadInputError, match=named):
        _check_alike(tiny_config.train, own, process)


def test_only_the_first_one_prepares(tiny_run_file, second, tmp_path):
    process, words = second
    config, run = read_run(tiny_run_file), RunDirectory(tmp_path / "run")
    words += ["", ""]
    with pytest.raises(TransduceError, match="process 1 of 2 does not see what the first one prepared"):
        _prepare(config, run, process)
    prepare(config, run)
    assert len(_prepare(config, run, process).train) > 0
    assert words == []
