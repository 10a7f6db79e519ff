import json
import logging
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.config import BadInputError, TrainConfig, TransduceError, preset
from transduce.models import build
from transduce.training import (
    CheckpointWriter,
    Progress,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    look,
    make_optimizer,
    read_weights,
    save_checkpoint,
)
from transduce.training import writer as checkpoint_writer
from transduce.training.checkpoint import list_regular, write_manifest
from transduce.training.health import Health

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
    return save_checkpoint(folder, look(model, optimizer, progress), keep=keep), model, optimizer, progress


def test_round_trip(tmp_path):
    path, model, optimizer, progress = _save(tmp_path)
    assert path == tmp_path / "step-7"
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
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
    path = save_checkpoint(tmp_path, look(model, optimizer, Progress(step=7, seconds=9.0)), keep=5)
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
    write_manifest(path)
    with pytest.raises(BadInputError, match=lost) as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(path / name) in str(caught.value)


def test_a_foreign_tensor_is_named(tmp_path):
    path, *_ = _save(tmp_path)
    file = path / "model.safetensors"
    save_file(load_file(file) | {"intruder": torch.zeros(3)}, file)
    write_manifest(path)
    with pytest.raises(BadInputError, match="intruder") as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_tensors_of_another_shape_are_refused(tmp_path, name):
    path, *_ = _save(tmp_path)
    snapshot = look(*_model_and_optimizer(seed=1, d_ff=13), Progress(step=7))
    wider = save_checkpoint(tmp_path / "wider", snapshot, keep=1)
    shutil.copy(wider / name, path / name)
    write_manifest(path)
    with pytest.raises(BadInputError, match="feed_forward") as caught:
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    assert str(path / name) in str(caught.value)


class TestLoadNewest:
    @pytest.fixture(autouse=True)
    def three(self, tmp_path, caplog):
        caplog.set_level(logging.WARNING)
        for step in (3, 7, 11):
            _save(tmp_path, step)

    @staticmethod
    def _damage(folder, *steps, name="model.safetensors"):
        for step in steps:
            file = folder / f"step-{step}" / name
            file.write_bytes(file.read_bytes()[:-7])

    @staticmethod
    def _entries(folder):
        return {path.name: (path / "model.safetensors").read_bytes() for path in folder.iterdir()}

    def test_whole_it_is_taken_in_silence(self, tmp_path, caplog):
        before = self._entries(tmp_path)
        assert load_newest(tmp_path, *_model_and_optimizer(seed=1)).step == 11
        assert not caplog.records
        assert self._entries(tmp_path) == before

    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
    def test_damaged_the_one_before_it_is_taken_whole(self, tmp_path, caplog, name):
        self._damage(tmp_path, 11, name=name)
        model, optimizer = _model_and_optimizer(seed=1)
        assert load_newest(tmp_path, model, optimizer).step == 7
        # Nothing of the damaged one, which may have been read in part, is left in them.
        expected, its_optimizer = _model_and_optimizer(seed=7)
        for weight, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(weight, other)
            for key in ("step", "exp_avg", "exp_avg_sq"):
                assert torch.equal(optimizer.state[weight][key], its_optimizer.state[other][key])
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("step-11 is put aside, going on from step-7 instead: ")
        assert str(tmp_path / "step-11" / name) in record.getMessage()

    def test_damaged_it_is_put_aside_and_is_no_checkpoint_any_more(self, tmp_path):
        self._damage(tmp_path, 11)
        before = self._entries(tmp_path)
        load_newest(tmp_path, *_model_and_optimizer(seed=1))
        before["step-11.damaged"] = before.pop("step-11")
        assert self._entries(tmp_path) == before
        assert [step for step, _ in list_checkpoints(tmp_path)] == [3, 7]

    def test_the_step_can_be_saved_and_damaged_again(self, tmp_path):
        for _ in range(2):
            self._damage(tmp_path, 11)
            load_newest(tmp_path, *_model_and_optimizer(seed=1))
            _save(tmp_path, 11)
        assert [step for step, _ in list_checkpoints(tmp_path)] == [3, 7, 11]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step-11", "step-11.damaged", "step-3", "step-7"]

    def test_two_damaged_ones_are_both_named(self, tmp_path, caplog):
        self._damage(tmp_path, 7, 11)
        assert load_newest(tmp_path, *_model_and_optimizer(seed=1)).step == 3
        said = [record.getMessage() for record in caplog.records]
        assert [message.partition(":")[0] for message in said] == [
            "step-11 is put aside, going on from step-3 instead",
            "step-7 is put aside, going on from step-3 instead",
        ]

    def test_an_older_ones_damage_does_not_matter(self, tmp_path, caplog):
        self._damage(tmp_path, 3, 7)
        assert load_newest(tmp_path, *_model_and_optimizer(seed=1)).step == 11
        assert not caplog.records

    def test_where_all_are_damaged_the_newest_is_named_and_all_stay(self, tmp_path, caplog):
        self._damage(tmp_path, 3, 7, 11)
        before = self._entries(tmp_path)
        with pytest.raises(BadInputError) as caught:
            load_newest(tmp_path, *_model_and_optimizer(seed=1))
        assert str(caught.value).startswith(f"{tmp_path / 'step-11' / 'model.safetensors'}: ")
        assert f"put {tmp_path / 'step-11'} there again from a copy, or train anew with" in str(caught.value)
        assert "another --out (here, with" in str(caught.value)
        assert self._entries(tmp_path) == before
        assert not caplog.records

    def test_another_model_is_no_damage(self, tmp_path, caplog):
        before = self._entries(tmp_path)
        with pytest.raises(BadInputError, match=r"step-11.*has shape"):
            load_newest(tmp_path, *_model_and_optimizer(seed=1, d_ff=13))
        assert self._entries(tmp_path) == before
        assert not caplog.records


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_one_bit_of_any_file_is_noticed(tmp_path, name):
    path, *_ = _save(tmp_path)
    content = bytearray((path / name).read_bytes())
    content[-len(content) // 3] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(BadInputError, match="damaged checkpoint"):
        load_checkpoint(path, *_model_and_optimizer(seed=1))
    if name == "model.safetensors":
        with pytest.raises(BadInputError, match=r"model\.safetensors: damaged checkpoint: its sha256 is not that in"):
            read_weights(path)


def test_the_manifest_is_what_sha256sum_says(tmp_path):
    path, *_ = _save(tmp_path)
    files = sorted(set(path.iterdir()) - {path / "manifest.json"})
    said = subprocess.run(["sha256sum", *files], capture_output=True, text=True, check=True).stdout
    expected = {line.split("/")[-1]: line.split()[0] for line in said.splitlines()}
    entries = json.loads((path / "manifest.json").read_text())
    assert {name: entry["sha256"] for name, entry in entries.items()} == expected
    assert all(entry["bytes"] == (path / name).stat().st_size for name, entry in entries.items())


def test_a_checkpoint_of_an_older_version_has_no_manifest(tmp_path, caplog):
    path, *_ = _save(tmp_path)
    (path / "manifest.json").unlink()
    assert load_checkpoint(path, *_model_and_optimizer(seed=1)).step == 7
    assert "no manifest" in caplog.text


def test_what_a_signal_asked_for_goes_with_the_next_and_displaces_none(tmp_path):
    for step in (2, 3, 4, 5, 6):
        snapshot = look(*_model_and_optimizer(seed=step), Progress(step=step, asked=step % 2 == 1))
        save_checkpoint(tmp_path, snapshot, keep=2)
        kept = [number for number, _ in list_checkpoints(tmp_path)]
        assert kept == {2: [2], 3: [2, 3], 4: [2, 4], 5: [2, 4, 5], 6: [4, 6]}[step]
    assert [number for number, _ in list_regular(tmp_path)] == [4, 6]


def test_what_a_training_can_go_back_to_stays_whoever_asked_for_it(tmp_path):
    """Step 0 is what a training with --init begins with, and all later ones have failing gradients."""
    for step in (0, 3, 6, 9):
        health = Health(in_a_row=step)
        snapshot = look(*_model_and_optimizer(seed=step), Progress(step=step, asked=step == 0, health=health))
        save_checkpoint(tmp_path, snapshot, keep=1)
        assert [number for number, _ in list_checkpoints(tmp_path)] == sorted({0, step})
    assert load_newest(tmp_path, *_model_and_optimizer(seed=1), finite=True).step == 0


def test_a_crash_while_a_step_is_saved_again_loses_nothing(tmp_path):
    path, *_ = _save(tmp_path)
    path.rename(path.with_name("step-7.older"))
    assert list_checkpoints(tmp_path) == [(7, path.with_name("step-7.older"))]
    assert load_newest(tmp_path, *_model_and_optimizer(seed=1)).step == 7
    _save(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["step-7"]
    path.rename(path.with_name("step-7.older"))
    _save(tmp_path, step=9, keep=1)
    assert [each.name for each in tmp_path.iterdir()] == ["step-9"]


class TestWriter:
    @pytest.fixture
    def writer(self, tmp_path):
        self.model, optimizer = _model_and_optimizer(seed=3)
        with CheckpointWriter(tmp_path / "run", self.model, optimizer, keep=2, before=lambda: None) as writer:
            yield writer

    def test_a_snapshot_is_of_the_step_it_was_taken_at(self, writer, tmp_path, monkeypatch):
        go_on, save = threading.Event(), checkpoint_writer.save_tensors

        def slow(*arguments):
            go_on.wait()
            save(*arguments)

        monkeypatch.setattr(checkpoint_writer, "save_tensors", slow)
        before = self.model.embedding.weight.detach().clone()
        writer.write(Progress(step=5))
        with torch.no_grad():
            self.model.embedding.weight += 1  # the training goes on
        assert list_checkpoints(tmp_path / "run") == []
        go_on.set()
        writer.finish()
        assert torch.equal(read_weights(tmp_path / "run" / "step-5")["embedding.weight"], before)

    @pytest.mark.parametrize(
        ("number", "cause", "remedy"),
        [(28, "No space left on device", "make room on this disk"), (13, "Permission denied", "let this user write")],
    )
    def test_a_disk_that_refuses_is_named_and_tried_again(
        self, writer, tmp_path, monkeypatch, caplog, number, cause, remedy
    ):
        caplog.set_level(logging.WARNING)
        writer.write(Progress(step=5))
        writer.wait()
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(number, cause)))
            writer.write(Progress(step=6))
            with pytest.raises(TransduceError, match=f"{cause}; step-5 is whole and stays.*{remedy}.*then --resume"):
                writer.finish()
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-5"]
        assert caplog.messages[0].count(cause) == 1
        writer.write(Progress(step=7))
        writer.finish()
        assert [step for step, _ in list_checkpoints(tmp_path / "run")] == [5, 7]

    def test_it_leaves_the_processors_to_the_training(self, writer, monkeypatch):
        seen, save, before = [], checkpoint_writer.save_tensors, torch.get_num_threads()

        def look_around(*arguments):
            seen.append(torch.get_num_threads())
            save(*arguments)

        monkeypatch.setattr(checkpoint_writer, "save_tensors", look_around)
        try:
            torch.set_num_threads(3)
            writer.write(Progress(step=5))
            writer.finish()
            assert (set(seen), torch.get_num_threads()) == ({1}, 3)
            with ThreadPoolExecutor(1) as another:
                assert another.submit(torch.get_num_threads).result() == 3
        finally:
            torch.set_num_threads(before)

    def test_memory_for_it_is_asked_for_once(self, writer):
        writer.write(Progress(step=5))
        places = {name: copy.data_ptr() for name, copy in writer._copies._copies.items()}
        writer.write(Progress(step=6))
        writer.finish()
        assert {name: copy.data_ptr() for name, copy in writer._copies._copies.items()} == places


def test_before_the_first_step_there_are_no_moments_whatever_the_optimizer_has(tmp_path):
    """A fine-tuning that goes back to where it began."""
    model, _ = _model_and_optimizer(seed=3)
    begin = save_checkpoint(tmp_path, look(model, make_optimizer(model, TrainConfig()), Progress(step=0)), keep=5)
    other, its_optimizer = _model_and_optimizer(seed=99)
    assert its_optimizer.state
    load_checkpoint(begin, other, its_optimizer)
    assert not its_optimizer.state


def test_where_all_steps_were_skipped_there_are_none_either(tmp_path):
    model, _ = _model_and_optimizer(seed=3)
    path = save_checkpoint(tmp_path, look(model, make_optimizer(model, TrainConfig()), Progress(step=2)), keep=5)
    other, its_optimizer = _model_and_optimizer(seed=99)
    assert load_checkpoint(path, other, its_optimizer).step == 2
    assert not its_optimizer.state
