"""Where a model computes, and with how many threads."""

import os
import sys

import pytest
import torch

from transduce.cli import main
from transduce.cli.options import use_threads

pytest_plugins = ["tiny_run"]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.fixture
def files(tmp_path):
    for name, line in (("source", "bamo dulu\n"), ("target", "ti sor\n")):
        (tmp_path / name).write_text(line)
    return [str(tmp_path / "source"), str(tmp_path / "target")]


def _verbs(model, files):
    source, target = files
    return {
        "translate": ["translate", str(model), "--input", source],
        "score": ["score", str(model), "--source", source, "--target", target],
        "evaluate": ["evaluate", str(model), "--source", source, "--reference", target],
    }


@pytest.mark.parametrize("verb", ["translate", "score", "evaluate"])
def test_the_device_is_the_one_asked_for(verb, trained_run, files, capfdbinary, monkeypatch):
    devices = []
    load = sys.modules["transduce.inference"].load

    def note(*arguments, **options):
        translator = load(*arguments, **options)
        devices.append(translator._engine.device)
        return translator

    monkeypatch.setattr("transduce.inference.load", note)
    assert main._run([*_verbs(trained_run, files)[verb], "--device", "cpu"]) == 0
    assert devices == [torch.device("cpu")]


@pytest.mark.parametrize("verb", ["translate", "score", "evaluate"])
@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("tpu", "device 'tpu': torch knows no such device: give 'cpu', 'cuda' or 'cuda:N'"),
        ("cuda:97", "device 'cuda:97': is not here"),
    ],
)
def test_one_that_is_not_there_is_named(verb, device, says, trained_run, files, capsys):
    assert main._run([*_verbs(trained_run, files)[verb], "--device", device]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err


def test_threads(trained_run, files, capfdbinary):
    torch.set_num_threads(1)
    assert main._run([*_verbs(trained_run, files)["score"], "--threads", "2"]) == 0
    assert torch.get_num_threads() == 2
    assert main._run(_verbs(trained_run, files)["score"]) == 0
    assert torch.get_num_threads() == 2  # nothing said, nothing changed


@pytest.mark.parametrize("verb", ["translate", "score", "evaluate", "train", "doctor"])
@pytest.mark.parametrize("number", ["0", "many"])
def test_threads_are_a_number_from_one_on(verb, number, capsys):
    assert main._run([verb, "something", "--threads", number]) == 2
    assert "--threads" in capsys.readouterr().err


def test_more_threads_than_cores_are_warned_of(caplog):
    cores = os.cpu_count()
    use_threads(cores)
    assert not caplog.messages
    use_threads(cores + 1)
    assert caplog.messages == [
        f"--threads {cores + 1}: this machine has {cores} cores, and more threads than that are slower"
    ]
