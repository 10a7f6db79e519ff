import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.cli.main import _run
from transduce.config import BadInputError, read_run
from transduce.training.checkpoint import write_manifest
from transduce.workflows import verify_resume as module
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]


@pytest.mark.parametrize("processes", ["one", pytest.param("three", marks=pytest.mark.slow)])
def test_two_halves_are_the_whole(tiny_run_file, tmp_path, capsys, monkeypatch, processes):
    def train_here(config, run, stop_after, init):
        module.train_run(config, run, resume=True, stop_after=stop_after, init=init)

    if processes == "one":
        monkeypatch.setattr(module, "_train_elsewhere", train_here)
    out = tmp_path / "run"
    settings = ["--set", "model.dropout=0.3", "--set", "tokenizer.bpe_dropout=0.2", "--set", "train.batch_tokens=64"]
    status = _run(["verify-resume", str(tiny_run_file), "--out", str(out), "--steps", "3", *settings])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    weights, optimizer, state, verdict = printed.out.splitlines()
    assert weights.startswith("weights: ")
    assert weights.endswith("numbers: the same bits")
    assert optimizer.startswith("optimizer: ")
    assert optimizer.endswith("numbers: the same bits")
    assert state.startswith("state: fixed, step, epoch, window, batch, target_tokens, work, best_score, best_step, ")
    assert state.endswith(": the same")
    assert verdict == "6 steps in one process and 3 + 3 in two end bit for bit alike"
    assert list(tmp_path.iterdir()) == []


def test_one_bit_is_noticed_and_named(tiny_run_file, tmp_path, monkeypatch):
    train = module.train_run

    def train_here(config, run, stop_after, init):
        train(config, run, resume=True, stop_after=stop_after)
        path = run.checkpoints / "step-4"
        if run.root.name == "halves" and path.exists():
            tensors = load_file(path / "optimizer.safetensors")
            tensors["embedding.weight.exp_avg"].view(torch.int32)[2, 3] ^= 1
            save_file(tensors, path / "optimizer.safetensors")
            write_manifest(path)

    monkeypatch.setattr(module, "_train_elsewhere", train_here)
    said = []
    folder, config = tmp_path / "both", read_run(tiny_run_file)
    assert not module.verify_resume(config, RunDirectory(tmp_path / "none"), folder, 2, said.append)
    assert said[0].endswith("the same bits")
    assert said[1].endswith("numbers: 1 differ: embedding.weight.exp_avg")
    assert said[-1] == "4 steps in one process and 2 + 2 in two end differently"
    shutil.rmtree(folder)


def test_a_text_that_ends_before_is_named(tiny_run_file, tmp_path, monkeypatch):
    def train_here(config, run, stop_after, init):
        module.train_run(config, run, resume=run.has_checkpoints, stop_after=stop_after, init=init)

    monkeypatch.setattr(module, "_train_elsewhere", train_here)
    settings = ["data.streaming=true", "data.at_end=stop", "data.shuffle_window=40", "data.max_length=60"]
    config = read_run(tiny_run_file, [*settings, "train.batch_tokens=400"])
    with pytest.raises(BadInputError, match=r"--steps 60: the training's text ends at step \d+, before twice as many"):
        module.verify_resume(config, RunDirectory(tmp_path / "none"), tmp_path / "both", 60, print)
    assert not RunDirectory(tmp_path / "both" / "halves").has_checkpoints  # they would tell nothing
    config = config.model_copy(update={"train": config.train.model_copy(update={"accumulate": 1000})})
    with pytest.raises(
        BadInputError, match=r"the corpora end before the first step: train\.accumulate = 1,000 batches"
    ):
        module.verify_resume(config, RunDirectory(tmp_path / "none"), tmp_path / "neither", 2, print)
