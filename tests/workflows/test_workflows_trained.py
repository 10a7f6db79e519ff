import json

import pytest

import transduce
from transduce.config import read_run
from transduce.training import list_checkpoints

pytest_plugins = ["tiny_run"]

SHORT = ["train.max_steps=4", "train.validate_every=2", "train.checkpoint_every=2", "train.log_every=1"]
PLACES = [("train", 1), ("train", 2), ("dev", 2), ("train", 3), ("train", 4), ("dev", 4)]


def _place(measured):
    return measured["split"], measured["step"]


def test_a_training_from_python_tells_what_it_measures_and_ends_with_a_model(tiny_run_file, tmp_path):
    heard = []
    trained = transduce.train(tiny_run_file, out=tmp_path / "run", settings=SHORT, callbacks=[heard.append])
    assert [_place(measured) for measured in heard] == PLACES
    written = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert heard == written
    best = next(each for each in heard if _place(each) == ("dev", trained.best_step))
    assert (trained.run, trained.step, trained.init) == (tmp_path / "run", 4, None)
    assert (trained.best_metric, trained.best_score) == ("bleu", best["bleu"])
    assert len(transduce.load(trained.run).translate(["bamo", "dulu"])) == 2


def test_losses_of_the_best_model_are_losses(tiny_run_file, tmp_path):
    """Progress keeps them negated, so that more is better."""
    settings = [*SHORT, "train.best_metric=loss"]
    heard = []
    trained = transduce.train(tiny_run_file, out=tmp_path, settings=settings, callbacks=[heard.append])
    losses = {each["step"]: each["loss"] for each in heard if each["split"] == "dev"}
    assert (
        (trained.best_metric, trained.best_score)
        == ("loss", losses[trained.best_step])
        == ("loss", min(losses.values()))
    )


def test_a_callback_that_returns_true_interrupts_the_training_which_goes_on_later(tiny_run_file, tmp_path):
    def enough(measured):
        heard.append(_place(measured))
        return measured["split"] == "dev"

    heard, all_heard = [], []
    config = read_run(tiny_run_file, [*SHORT, "train.max_steps=6"])
    trained = transduce.train(config, out=tmp_path, callbacks=[enough, all_heard.append])
    assert trained.step == 2
    assert [step for step, _ in list_checkpoints(tmp_path / "checkpoints")][-1] == 2
    assert heard == [_place(each) for each in all_heard] == PLACES[:3]
    heard.clear()
    assert (
        transduce.train(config, out=tmp_path, resume=True, callbacks=[lambda each: heard.append(each) or 7]).step == 6
    )
    assert [_place(each) for each in heard] == [*PLACES[3:], ("train", 5), ("train", 6), ("dev", 6)]


def test_what_a_callback_raises_ends_the_training_and_loses_no_checkpoint(tiny_run_file, tmp_path):
    def fail(measured):
        if _place(measured) == ("train", 3):
            raise LookupError("not mine")

    with pytest.raises(LookupError, match="not mine"):
        transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, callbacks=[fail])
    assert [step for step, _ in list_checkpoints(tmp_path / "checkpoints")] == [2]
    assert transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, resume=True).step == 4


def test_a_callback_may_change_what_it_is_given(tiny_run_file, tmp_path):
    heard = []
    transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, callbacks=[dict.clear, heard.append])
    assert [_place(measured) for measured in heard] == PLACES


def test_without_a_file_the_run_directory_is_named_and_settings_are_in_the_config(tiny_config, tmp_path):
    with pytest.raises(transduce.BadInputError, match="no file whose name the run directory could take: give out"):
        transduce.train(tiny_config)
    with pytest.raises(transduce.BadInputError, match="settings are applied to a run file"):
        transduce.train(tiny_config, out=tmp_path, settings=["train.max_steps=4"])


def test_the_run_directory_is_named_after_the_run_file(tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [*SHORT, "train.max_steps=1"]
    assert str(transduce.train(str(tiny_run_file), settings=settings).run) == "runs/tiny"
