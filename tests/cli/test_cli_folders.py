"""What stands in the place of what a verb writes stays there; and folders that are not what a verb asks for."""

import shutil

import pytest

from transduce.cli import main
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]


@pytest.fixture
def run(trained_run, tmp_path):
    return shutil.copytree(trained_run, tmp_path / "run")


def error_of(capsys, *arguments):
    capsys.readouterr()
    assert main._run([*map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    return shown.err


def files(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


class TestAverage:
    @pytest.mark.parametrize("place", [".", "best", "checkpoints"])
    def test_does_not_overwrite(self, run, place, capsys):
        """The run directory itself went, with all its checkpoints."""
        before = files(run)
        assert f"{run / place}: exists and is not empty: choose another place" in error_of(
            capsys, "average", run, "--last", 1, "--out", run / place
        )
        assert files(run) == before

    def test_takes_an_empty_folder_and_no_file(self, run, tmp_path, capsys):
        (tmp_path / "empty").mkdir()
        assert main._run(["average", str(run), "--last", "1", "--out", str(tmp_path / "empty")]) == 0
        assert (tmp_path / "empty" / "config.json").is_file()
        (tmp_path / "file").write_text("mine")
        for place, why in (("file", "exists and is not empty"), ("file/model", "is a file, where a folder belongs")):
            assert why in error_of(capsys, "average", run, "--last", 1, "--out", tmp_path / place)
        assert (tmp_path / "file").read_text() == "mine"

    def test_says_what_last_is(self, run, tmp_path, capsys):
        line = ["average", run, "--out", tmp_path / "m", "--last"]
        assert "--last 0: must be at least 1: the model is the mean of so many" in error_of(capsys, *line, 0)
        assert "has 2 checkpoints (steps 200, 400): ask for 2 or fewer" in error_of(capsys, *line, 3)
        shutil.rmtree(run / "checkpoints")
        assert "has no checkpoints yet: train writes them" in error_of(capsys, *line, 1)


class TestCheckpointsAreNoModels:
    @pytest.mark.parametrize("place", ["checkpoints/step-200", "checkpoints"])
    @pytest.mark.parametrize("verb", ["translate", "score", "inspect", "export"])
    def test_average_is_named(self, run, verb, place, capsys, monkeypatch):
        options = {
            "score": ["--source", run / "run.toml", "--target", run / "run.toml"],
            "export": ["--to", "ctranslate2", "--out", run / "out"],
        }
        message = error_of(capsys, verb, run / place, *options.get(verb, []))
        assert f"and transduce average {run} --last 1 --out MODEL makes a model of the newest one" in message

    def test_from_within_too(self, run, capsys, monkeypatch):
        monkeypatch.chdir(run / "checkpoints" / "step-200")
        assert f"this is a checkpoint, and transduce average {run} --last 1" in error_of(capsys, "translate", ".")

    def test_of_a_run_that_has_no_best_yet(self, run, capsys):
        shutil.rmtree(run / "best")
        assert f"it has checkpoints, and transduce average {run} --last 1" in error_of(capsys, "translate", run)

    def test_not_where_there_are_none(self, run, capsys):
        shutil.rmtree(run / "best")
        shutil.rmtree(run / "checkpoints")
        assert "average" not in error_of(capsys, "translate", run)


class TestShortlist:
    def test_of_a_model_directory_says_what_it_needs(self, run, tmp_path, capsys, monkeypatch):
        message = error_of(capsys, "shortlist", run / "best")
        assert "is learned from the text that the model was trained on, which only its run directory has" in message
        assert f"give that one (here that is {run})" in message
        monkeypatch.chdir(run / "best")
        assert f"(here that is {run})" in error_of(capsys, "shortlist", ".")
        shutil.copytree(run / "best", tmp_path / "elsewhere" / "model")
        assert "(the folder that train --out named)" in error_of(capsys, "shortlist", tmp_path / "elsewhere" / "model")


class TestRunDirectories:
    @pytest.mark.parametrize("verb", ["prepare", "train"])
    def test_a_model_directory_does_not_become_one(self, tiny_run_file, run, tmp_path, verb, capsys):
        model = shutil.copytree(run / "best", tmp_path / "model")
        before = files(model)
        message = error_of(capsys, verb, tiny_run_file, "--out", model)
        assert f"{model}: a model directory: a run directory would overwrite what is there: give another" in message
        assert files(model) == before

    def test_nor_the_folder_of_somebodys_run_file_or_tokenizer(self, tiny_run_file, tmp_path, capsys):
        for name in ("run.toml", "tokenizer.json"):
            (tmp_path / name).write_text("# mine")
            message = error_of(capsys, "prepare", tiny_run_file, "--out", tmp_path)
            assert f"{tmp_path}: has a {name} that is of no run" in message
            assert (tmp_path / name).read_text() == "# mine"
            assert main._run(["doctor", str(tiny_run_file), "--out", str(tmp_path)]) == 1
            assert f"problem: {tmp_path}: has a {name} that is of no run" in capsys.readouterr().out
            (tmp_path / name).unlink()

    @pytest.mark.parametrize("verb", ["prepare", "train"])
    def test_nor_a_file(self, tiny_run_file, tmp_path, verb, capsys):
        (tmp_path / "file").write_text("mine")
        assert "is a file" in error_of(capsys, verb, tiny_run_file, "--out", tmp_path / "file")

    def test_one_whose_store_is_lost_is_prepared_again(self, tiny_run_file, tmp_path):
        line = ["prepare", str(tiny_run_file), "--out", str(tmp_path / "out")]
        assert main._run(line) == 0
        shutil.rmtree(RunDirectory(tmp_path / "out").train_store.parent)
        assert main._run(line) == 0
