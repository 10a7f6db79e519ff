import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.config import BadInputError, TrainConfig, preset
from transduce.models import build
from transduce.training import Progress, list_checkpoints, load_checkpoint, make_optimizer, save_checkpoint

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 12, "heads": 2, "vocab_size": 19}


def _model_and_optimizer(seed, **changes):
    """A fresh model whose optimizer has made two steps against random gradients."""
    torch.manual_seed(seed)
    model = build(preset("base", SMALL | changes))
    optimizer = make_optimizer(model, TrainConfig())
    for _ in range(2):
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    return model, optimizer


def _save(folder, step=7, keep=5):
    model, optimizer = _model_and_optimizer(seed=step)
    progress = Progress(step=step, epoch=1, batch=3, target_tokens=1009, seconds=2.5, best_score=31.7, best_step=5)
    return save_checkpoint(folder, model, optimizer, progress, keep=keep), model, optimizer, progress


def test_round_trip(tmp_path):
    path, model, optimizer, progress = _save(tmp_path)
    assert path == tmp_path / "step-7"
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    other, its_optimizer = _model_and_optimizer(seed=99)
    assert load_checkpoint(path, other, its_optimizer) == progress
    for weight, restored in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, restored)
        for key in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[weight][key], its_optimizer.state[restored][key])


def test_an_optimizer_that_has_not_stepped_yet_is_filled(tmp_path):
    path, _, optimizer, _ = _save(tmp_path)
    fresh = build(preset("base", SMALL))
    its_optimizer = make_optimizer(fresh, TrainConfig())
    load_checkpoint(path, fresh, its_optimizer)
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    restored = [its_optimizer.state[weight]["exp_avg"] for weight in fresh.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(moments, restored, strict=True))
    assert {float(its_optimizer.state[weight]["step"]) for weight in fresh.parameters()} == {2.0}


def test_the_newest_stay_in_the_order_of_their_steps(tmp_path):
    for step in (2, 9, 10, 100):  # as text, "step-100" would come before "step-9"
        _save(tmp_path, step, keep=3)
    assert [step for step, _ in list_checkpoints(tmp_path)] == [9, 10, 100]


def test_unfinished_folders_are_no_checkpoints_and_do_not_stand_in_the_way(tmp_path):
    (tmp_path / "step-7.unfinished").mkdir()
    (tmp_path / "step-7.unfinished" / "model.safetensors").write_bytes(b"half of it")
    (tmp_path / "step-6.older").mkdir()
    (tmp_path / "step-x").mkdir()
    assert list_checkpoints(tmp_path) == []
    path, *_ = _save(tmp_path)
    assert list_checkpoints(tmp_path) == [(7, path)]
    assert load_checkpoint(path, *_model_and_optimizer(seed=1)).step == 7
    assert not (tmp_path / "step-7.unfinished").exists()


def test_no_folder_no_checkpoints(tmp_path):
    assert list_checkpoints(tmp_path / "missing") == []


def test_saving_the_same_step_again_replaces_it(tmp_path):
    _save(tmp_path)
    model, optimizer = _model_and_optimizer(seed=42)
    path = save_checkpoint(tmp_path, model, optimizer, Progress(step=7, seconds=9.0), keep=5)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-7"]
    other, its_optimizer = _model_and_optimizer(seed=1)
    assert load_checkpoint(path, other, its_optimizer).seconds == 9.0
    assert torch.equal(other.embedding.weight, model.embedding.weight)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing"])
def test_damage_is_named(tmp_path, name, damage):
    path, *_ = _save(tmp_path)
    content = (path / name).read_bytes()
    if damage == "missing":
        (path / name).unlink()
    else:
        (path / name).write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    with pytest.raises(BadInputError) as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(caught.value).startswith(str(path / name))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_tensor_too_few_is_named(tmp_path, name):
    path, *_ = _save(tmp_path)
    tensors = load_file(path / name)
    lost = sorted(tensors)[0]
    save_file({key: value for key, value in tensors.items() if key != lost}, path / name)
    with pytest.raises(BadInputError, match=lost) as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(path / name) in str(caught.value)


def test_a_foreign_tensor_is_named(tmp_path):
    path, *_ = _save(tmp_path)
    file = path / "model.safetensors"
    save_file(load_file(file) | {"intruder": torch.zeros(3)}, file)
    with pytest.raises(BadInputError, match="intruder") as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_tensors_of_another_shape_are_refused(tmp_path, name):
    path, *_ = _save(tmp_path)
    wider = save_checkpoint(tmp_path / "wider", *_model_and_optimizer(seed=1, d_ff=13), Progress(step=7), keep=1)
    shutil.copy(wider / name, path / name)
    with pytest.raises(BadInputError, match="feed_forward") as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(path / name) in str(caught.value)
