import json
import shutil

import pytest
import torch

from transduce.bundle import load_bundle, read_tensors
from transduce.cli import main
from transduce.config import BadInputError, TrainConfig, read_run
from transduce.training import DevOutputs, average_weights, list_checkpoints
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]
SHORT = ["train.max_steps=12", "train.checkpoint_every=4", "train.validate_every=4", "train.log_every=4"]


def measurements(run):
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def test_the_mean_by_hand():
    first = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])}
    second = {"a": torch.tensor([3.0, 7.0]), "b": torch.tensor([[-4.0]])}
    third = {"a": torch.tensor([2.0, 0.0]), "b": torch.tensor([[7.0]])}
    found = average_weights(iter([first, second, third]))
    assert found["a"].tolist() == [2, 3]
    assert found["b"].tolist() == [[2]]
    assert found["a"].dtype == torch.float32
    assert first["a"].tolist() == [1, 2]  # what was averaged is left alone
    with pytest.raises(ValueError, match="no checkpoints"):
        average_weights([])


def test_the_verb_writes_a_model_of_the_newest_checkpoints(tiny_run_file, tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    train_run(read_run(tiny_run_file, SHORT), run, resume=False)
    out = tmp_path / "mean"
    assert main._run(["average", str(run.root), "--last", "2", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: the mean of steps 8, 12\n"
    weights = [read_tensors(path / "model.safetensors") for _, path in list_checkpoints(run.checkpoints)]
    found = load_bundle(out).model.state_dict()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, (weights[1][name] + weights[2][name]) / 2)
    for wrong in ("0", "4"):
        assert main._run(["average", str(run.root), "--last", wrong, "--out", str(out)]) == 2
    assert "has 3 checkpoints" in capsys.readouterr().err
    assert main._run(["average", str(tmp_path / "no"), "--last", "1", "--out", str(out)]) == 2


def test_training_tries_the_mean_on_dev_and_resumes_it_exactly(tiny_run_file, tmp_path):
    settings = [*SHORT, "train.average_last=2", "train.best_metric=loss", "train.learning_rate_factor=0.01"]
    whole, halves = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "halves")
    train_run(read_run(tiny_run_file, settings), whole, resume=False)
    dev = [entry for entry in measurements(whole) if entry["split"] == "dev"]
    # At step 4 there is no older checkpoint yet.
    assert [(entry["step"], entry.get("average", 1)) for entry in dev] == [(4, 1), (8, 1), (8, 2), (12, 1), (12, 2)]
    train_run(read_run(tiny_run_file, [*settings, "train.max_steps=8"]), halves, resume=False)
    train_run(read_run(tiny_run_file, settings), halves, resume=True)
    assert [entry["loss"] for entry in measurements(halves)] == [entry["loss"] for entry in measurements(whole)]


def test_best_may_be_the_mean(tiny_run_file, tmp_path, monkeypatch):
    scores = iter([1.0, 2.0, 30.0])
    monkeypatch.setattr(
        "transduce.workflows.train.translate_dev", lambda *_: lambda _: DevOutputs({"bleu": next(scores)})
    )
    run = RunDirectory(tmp_path / "run")
    train_run(read_run(tiny_run_file, [*SHORT, "train.average_last=2", "train.max_steps=8"]), run, resume=False)
    weights = [read_tensors(path / "model.safetensors") for _, path in list_checkpoints(run.checkpoints)]
    for name, tensor in load_bundle(run.root).model.state_dict().items():
        torch.testing.assert_close(tensor, (weights[0][name] + weights[1][name]) / 2)


def test_more_to_average_than_is_kept_is_refused(tiny_run_file):
    with pytest.raises(BadInputError, match="average_last = 6 needs as many checkpoints, but keep_checkpoints = 5"):
        read_run(tiny_run_file, ["train.average_last=6"])


def test_early_stopping_counts_validations_without_a_better_one(tiny_run_file, tmp_path, monkeypatch):
    scores = iter([1.0, 3.0, 2.0, 2.5, 4.0])
    monkeypatch.setattr(
        "transduce.workflows.train.translate_dev", lambda *_: lambda _: DevOutputs({"bleu": next(scores)})
    )
    run = RunDirectory(tmp_path / "run")
    config = read_run(tiny_run_file, [*SHORT, "train.max_steps=99", "train.validate_every=2", "train.early_stop=2"])
    progress = train_run(config, run, resume=False)
    assert (progress.step, progress.best_step, progress.stale) == (8, 4, 2)
    assert list_checkpoints(run.checkpoints)[-1][0] == 8
    before = shutil.copytree(run.root, tmp_path / "copy")
    assert train_run(config, RunDirectory(before), resume=True).step == 8  # it stays ended


def test_checkpoints_by_the_clock(tiny_run_file, tmp_path):
    run = RunDirectory(tmp_path / "run")
    settings = ["train.max_steps=5", "train.checkpoint_minutes=1e-9", "train.keep_checkpoints=9"]
    train_run(read_run(tiny_run_file, settings), run, resume=False)
    assert [step for step, _ in list_checkpoints(run.checkpoints)] == [1, 2, 3, 4, 5]


def test_the_papers_averaging_can_be_said():
    config = TrainConfig(average_last=20, keep_checkpoints=20, checkpoint_minutes=10.0)
    assert (config.average_last, config.checkpoint_minutes) == (20, 10)
