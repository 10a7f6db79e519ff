"""``transduce report``: a page about a training."""

import shutil
import subprocess
import sys

import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run"]


@pytest.fixture
def run(trained_run, tmp_path):
    return shutil.copytree(trained_run, tmp_path / "run")


def test_a_page_beside_the_run_or_elsewhere(run, tmp_path, capfd):
    assert main._run(["report", str(run)]) == 0
    assert capfd.readouterr() == (f"{run / 'report.html'}\n", "")
    out = tmp_path / "page.html"
    assert main._run(["report", str(run), "--out", str(out)]) == 0
    assert capfd.readouterr() == (f"{out}\n", "")
    page = out.read_text(encoding="utf-8")
    assert page == (run / "report.html").read_text(encoding="utf-8")
    assert "<h1>Training run</h1>" in page


def test_a_training_goes_on_beside_its_page(run, tiny_run_file):
    assert main._run(["report", str(run)]) == 0
    arguments = ["train", str(tiny_run_file), "--out", str(run), "--resume", "--set", "train.max_steps=401"]
    assert main._run(arguments) == 0
    assert main._run(["report", str(run)]) == 0
    assert "401 steps" in (run / "report.html").read_text(encoding="utf-8")


def test_no_torch_is_needed(run):
    code = (
        "import sys; from transduce.cli import main; "
        f"assert main._run(['report', {str(run)!r}]) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_be_reported_or_written_is_named(run, tmp_path, capfd):
    for arguments, named in (
        (["report", str(tmp_path / "none")], "no such run directory"),
        (["report", str(run / "best")], f"a model directory and no run: run.toml is missing; its run is {run}"),
        (
            ["report", str(run), "--out", str(tmp_path / "no" / "a.html")],
            f"No such file or directory: make the folder {tmp_path / 'no'} first",
        ),
        (["report", str(run), "--out", str(tmp_path)], "is a directory"),
        (["report"], "RUN"),
    ):
        assert main._run(arguments) == 2
        shown = capfd.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        assert named in shown.err
    assert [*tmp_path.iterdir()] == [run]
