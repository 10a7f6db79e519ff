"""Checkpoints of strangers are read or refused, and nothing in them is run."""

import argparse
import os
import pickle
import zipfile

import pytest
import torch

from transduce.config import BadInputError
from transduce.interop.checkpoints import StandIn, load_checkpoint, stand_ins, tensors_of

OPTIONS = stand_ins("argparse.Namespace")


class Hostile:
    """Asks whoever unpickles it for a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def content():
    weights = {"matrix": torch.arange(15.0).view(3, 5), "half": torch.nn.Parameter(torch.ones(7).half())}
    return {"args": argparse.Namespace(heads=2), "model": weights, "epoch": 11}


@pytest.fixture(params=[True, False], ids=["archive", "old"])
def saved(request, tmp_path):
    """Writes a checkpoint, as torch does and as it did."""

    def save(stored, name="model.pt"):
        torch.save(stored, tmp_path / name, _use_new_zipfile_serialization=request.param)
        return tmp_path / name

    return save


def test_tensors_containers_and_named_classes_come_back(saved):
    path = saved(content())
    stored = load_checkpoint(path, OPTIONS)
    assert isinstance(stored["args"], StandIn)
    assert (stored["args"].heads, stored["epoch"]) == (2, 11)
    weights = tensors_of(stored["model"], path)
    assert weights["matrix"].tolist() == torch.arange(15.0).view(3, 5).tolist()
    assert weights["half"].dtype == torch.float16


def test_another_class_is_refused_by_its_name(saved):
    with pytest.raises(BadInputError, match=r"model\.pt: asks for argparse\.Namespace") as refused:
        load_checkpoint(saved(content()))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {}/run",), rf"{os.name}\.system"),
        (eval, ("open('{}/run', 'w')",), r"builtins\.eval"),
        (bytearray, (10**12,), r"builtins\.bytearray"),
        (torch.load, ("{}/another.pt",), r"torch\.serialization\.load"),
        (getattr, ("torch", "load"), r"builtins\.getattr"),
    ],
)
def test_nothing_is_run_and_no_memory_taken_for_the_asking(saved, tmp_path, function, arguments, name):
    arguments = [each.format(tmp_path) if isinstance(each, str) else each for each in arguments]
    with pytest.raises(BadInputError, match=f"asks for {name}"):
        load_checkpoint(saved({"model": Hostile(function, *arguments)}), OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_bare_pickle_is_none(tmp_path):
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Hostile(os.system, f"touch {tmp_path}/run")))
    with pytest.raises(BadInputError, match=r"model\.pt: no checkpoint of torch\.save"):
        load_checkpoint(tmp_path / "model.pt")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_shorter_file_is_damaged(saved, share):
    path = saved(content())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BadInputError, match=r"model\.pt: ") as refused:
        load_checkpoint(path, OPTIONS)
    assert len(str(refused.value).splitlines()) == 1


def test_a_tensor_larger_than_what_is_stored_of_it(saved):
    path = saved({"matrix": torch.ones(1).expand(10**6, 10**6)})
    with pytest.raises(BadInputError, match=r"matrix has shape \(1000000, 1000000\), of which less is stored"):
        tensors_of(load_checkpoint(path), path)


def test_a_compressed_archive(tmp_path):
    torch.save({"zeros": torch.zeros(10**5)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w") as bomb:
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry), zipfile.ZIP_DEFLATED)
    with pytest.raises(BadInputError, match="a compressed archive"):
        load_checkpoint(tmp_path / "bomb.pt")


def test_what_is_no_file_or_no_checkpoint(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("notes.txt", "none")
    (tmp_path / "text.pt").write_text("none\n")
    for name, message in (
        ("missing.pt", "no such checkpoint"),
        ("other.zip", r"it has no data\.pkl"),
        ("text.pt", "or none|no checkpoint"),
        (".", "is no plain file"),
    ):
        with pytest.raises(BadInputError, match=message):
            load_checkpoint(tmp_path / name)


@pytest.mark.parametrize("stored", [[], {}, {"matrix": 3}, {7: torch.ones(3)}])
def test_weights_are_tensors_by_name(tmp_path, stored):
    with pytest.raises(BadInputError, match="it is no such checkpoint"):
        tensors_of(stored, tmp_path / "model.pt")


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_weights_are_floating_point_numbers(tmp_path, kind):
    message = (
        rf"model\.pt: matrix is of {str(kind).removeprefix('torch.')}: only weights of float16, bfloat16, float32 or"
    )
    with pytest.raises(BadInputError, match=message):
        tensors_of({"matrix": torch.ones(3).to(kind)}, tmp_path / "model.pt")


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_and_of_any_usual_number_of_bits(tmp_path, kind):
    assert tensors_of({"matrix": torch.ones(3, dtype=kind)}, tmp_path / "model.pt")["matrix"].dtype == kind
