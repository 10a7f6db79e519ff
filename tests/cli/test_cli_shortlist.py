"""The verb ``shortlist``, and ``translate`` with what it makes."""

import re
import shutil

import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run"]


@pytest.fixture
def run(trained_run, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


def test_learned_and_used(run, tmp_path, capsys):
    """Each word has one translation, and seven words of a few tokens each make no long list."""
    assert main._run(["shortlist", str(run), "--size", "5", "--first", "0"]) == 0
    said = capsys.readouterr().out
    file = run / "best" / "shortlist.safetensors"
    assert said.startswith(f"{file}: ")
    assert said.endswith("% of the target symbols of dev\n")
    assert float(re.search(r"with ([0-9.]+)% of", said)[1]) > 95
    source = tmp_path / "texts"
    source.write_text("bamo dulu kari\n\nluso gozu\n")
    outputs = []
    for options in ([], ["--shortlist"]):
        target = tmp_path / "output"
        line = ["translate", str(run), "--input", str(source), "--output", str(target), *options]
        assert main._run(line) == 0
        outputs.append(target.read_text())
    assert outputs[1] == outputs[0] == "ti sor mup\n\nhax ved\n"


def test_what_is_wrong_is_said(run, capsys):
    assert main._run(["translate", str(run), "--shortlist"]) == 2
    assert "best/shortlist.safetensors: no such file: make it with transduce shortlist RUN" in capsys.readouterr().err
    for option, value in (("--size", "0"), ("--first", "-1"), ("--pairs", "0"), ("--size", "100000")):
        assert main._run(["shortlist", str(run), option, value]) == 2
        assert f"error: {option} {value}: must be " in capsys.readouterr().err
    shutil.rmtree(run / "store")
    assert main._run(["shortlist", str(run)]) == 2
    assert "no such store: prepare the run again (transduce prepare)" in capsys.readouterr().err
