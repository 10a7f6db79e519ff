"""Prepacked weights beside a model: the same model, found again or made anew, whatever has become of them."""

import json
import logging
import multiprocessing
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.random_bundle import random_bundle
from transduce.bundle import load_bundle, load_prepacked, open_bundle, prepacked, read_prepacked, save_bundle
from transduce.config import BadInputError
from transduce.models import NativeTransformer

FORMATS = ["float32", "bfloat16", "int8"]


@pytest.fixture(autouse=True)
def _built(built): ...


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    """Files that were written just now count as ones that nobody has touched for long."""
    monkeypatch.setattr(prepacked, "_COARSE", -1)


@pytest.fixture
def stored(tmp_path):
    save_bundle(random_bundle(positions="learned", max_positions=61, source_vocab_size=29), tmp_path / "model")
    return open_bundle(tmp_path / "model")


def numbers(bundle):
    """All that the kernels read."""
    model = bundle.model
    layers = [*model._encoder.layers, *model._decoder.layers]
    parts = [part for layer in layers for part in vars(layer).values() if part is not None]
    parts += [model._projection, model._encoder.last, model._decoder.last]
    tensors = [each for part in parts if part for each in vars(part).values() if isinstance(each, torch.Tensor)]
    return [*tensors, model._encoder.embedding, model._decoder.embedding, model._encoder_positions.first]


def same(one, other):
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    assert len(pairs) > 100
    return all(x.dtype == y.dtype and x.equal(y) for x, y in pairs)


def files(stored):
    return sorted(path.name for path in (stored.directory / "cache").iterdir())


def no_longer(*_, **__):
    raise AssertionError("this was to be done once")


@pytest.fixture
def once(monkeypatch):
    """From here on, nothing may be read of the weights, nor prepacked."""

    def begin():
        for name in ("open_weights", "check_weights", "Prepacking"):
            monkeypatch.setattr(prepacked, name, no_longer)
        monkeypatch.setattr(prepacked.hashlib, "file_digest", no_longer)

    return begin


def test_what_others_may_have_mapped_is_not_to_be_written_over(stored):
    load_prepacked(stored, "int8")
    modes = {path.suffix: path.stat().st_mode & 0o222 for path in (stored.directory / "cache").iterdir()}
    assert modes[".safetensors"] == 0


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_prepacked_as_it_is_read_is_the_one_of_the_whole(stored, format_, dtype):
    weights = {name: tensor.to(dtype) for name, tensor in load_file(stored.weights).items()}
    save_file(weights, stored.weights)
    whole = load_bundle(stored.directory)
    expected = replace(read_prepacked(stored, format_), model=NativeTransformer(whole.model, format_))
    assert same(read_prepacked(stored, format_), expected)


@pytest.mark.parametrize("format_", FORMATS)
def test_what_was_kept_is_the_same_and_nothing_is_read_again(stored, format_, once):
    expected = read_prepacked(stored, format_)
    assert same(load_prepacked(stored, format_), expected)
    once()
    assert same(load_prepacked(stored, format_), expected)
    sha256 = prepacked.hashlib.sha256(stored.weights.read_bytes()).hexdigest()
    assert json.loads((stored.directory / "cache" / "weights.json").read_text())["sha256"] == sha256
    name, known = files(stored)
    assert known == "weights.json"
    assert re.fullmatch(rf"{sha256[:16]}-{format_}-(avx2|avxvnni|avx512|avx512vnni|amx)-\d+\.safetensors", name)


def test_it_is_mapped_and_not_copied(stored):
    bundle = load_prepacked(stored, "int8")
    panels = bundle.model._projection.panels
    assert panels.data_ptr() % 64 == 0
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what is mapped")
    (name,) = [each for each in files(stored) if each.endswith(".safetensors")]
    ranges = [line.split()[0].split("-") for line in maps.read_text().splitlines() if line.endswith(name)]
    assert any(int(first, 16) <= panels.data_ptr() < int(last, 16) for first, last in ranges)


def damage(path, how):
    content, facts, tensors = path.read_bytes(), header(path)["__metadata__"], load_file(path)
    scales = next(name for name in tensors if name.endswith("scales"))
    path.unlink()  # another process may have it mapped: what is written in place changes that, too
    match how:
        case "empty":
            path.write_bytes(b"")
        case "header cut":
            path.write_bytes(content[:100])
        case "cut":
            path.write_bytes(content[:-1])
        case "longer":
            path.write_bytes(content + b"\0")
        case "foreign":
            path.write_bytes(b"\x89PNG" * 1000)
        case "of other weights":
            save_file(tensors, path, metadata=facts | {"weights": "f" * 64})
        case "shape":
            save_file({**tensors, scales: torch.ones(3)}, path, metadata=facts)
        case "one less":
            tensors.pop(scales)
            save_file(tensors, path, metadata=facts)
        case "a folder":
            path.mkdir()


def header(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


@pytest.mark.parametrize(
    "how", ["empty", "header cut", "cut", "longer", "foreign", "of other weights", "shape", "one less", "a folder"]
)
def test_what_is_damaged_is_made_anew(stored, how, caplog, once):
    expected = load_prepacked(stored, "int8")
    path = stored.directory / "cache" / files(stored)[0]
    damage(path, how)
    assert same(load_prepacked(stored, "int8"), expected)
    assert f"{path}: these prepacked weights do not fit, and are made anew: " in caplog.text
    if how == "a folder":  # which a file cannot take the place of
        assert "cannot be kept there, so every start makes them" in caplog.text
        return
    assert caplog.text.count("\n") == 1
    once()
    assert same(load_prepacked(stored, "int8"), expected)


def test_another_configuration_of_the_same_weights_is_another_model(stored, caplog):
    load_prepacked(stored, "int8")
    path = stored.directory / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for changed, refused in (({"norm_epsilon": 0.5}, False), ({"tied_projection": False}, True)):
        path.write_text(json.dumps({**settings, **changed}), encoding="utf-8")
        if refused:
            with pytest.raises(BadInputError, match="weights of another model"):
                load_prepacked(open_bundle(stored.directory), "int8")
        else:
            assert load_prepacked(open_bundle(stored.directory), "int8").config.norm_epsilon == 0.5
        assert "they are of something else" in caplog.text
        caplog.clear()


def test_where_nothing_can_be_written_a_warning_says_so(stored, caplog):
    (stored.directory / "cache").write_text("in the way")
    assert same(load_prepacked(stored, "int8"), read_prepacked(stored, "int8"))
    assert "cache: prepacked weights cannot be kept there, so every start makes them: " in caplog.text
    assert (stored.directory / "cache").read_text() == "in the way"


def test_a_full_disk_leaves_nothing_behind(stored, monkeypatch, caplog):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepacked, "save_aligned", fail)
    assert same(load_prepacked(stored, "int8"), read_prepacked(stored, "int8"))
    assert caplog.text.rstrip().endswith("so every start makes them: No space left on device")
    assert files(stored) == ["weights.json"]


def test_a_copy_of_the_folder_brings_its_cache_along(stored, tmp_path, monkeypatch):
    expected = load_prepacked(stored, "int8")
    shutil.copytree(stored.directory, tmp_path / "copy")
    monkeypatch.setattr(prepacked, "Prepacking", no_longer)  # though its weights are another file, which is read
    copy = open_bundle(tmp_path / "copy")
    assert same(load_prepacked(copy, "int8"), expected)
    monkeypatch.setattr(prepacked.hashlib, "file_digest", no_longer)
    assert same(load_prepacked(copy, "int8"), expected)


def change_weights(stored):
    """Other weights in a file of the same size, which claims to be as old."""
    before = stored.weights.stat()
    with stored.weights.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\x3f")
    os.utime(stored.weights, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_other_weights_take_the_place_of_older_ones(stored):
    older = load_prepacked(stored, "int8")
    before = files(stored)
    unfinished = stored.directory / "cache" / "left.unfinished"
    unfinished.write_text("")
    os.utime(unfinished, (1, 1))
    (stored.directory / "cache" / "own.txt").write_text("somebody's")
    change_weights(stored)
    newer = load_prepacked(stored, "int8")
    assert same(newer, read_prepacked(stored, "int8"))
    assert not same(newer, older)
    name, *others = files(stored)
    assert name not in before
    assert others == ["own.txt", "weights.json"]


def test_weights_that_change_while_they_are_read_are_not_kept(stored, monkeypatch, caplog):
    made = prepacked._prepack

    def make(*arguments):
        found = made(*arguments)
        change_weights(stored)
        return found

    monkeypatch.setattr(prepacked, "_prepack", make)
    load_prepacked(stored, "int8")
    assert f"{stored.weights}: has changed while it was read, so nothing of it is kept" in caplog.text
    assert files(stored) == ["weights.json"]


def test_what_changed_just_now_is_not_known_by_its_time(stored, monkeypatch):
    monkeypatch.setattr(prepacked, "_COARSE", 3600e9)
    load_prepacked(stored, "int8")
    assert "weights.json" not in files(stored)


def test_other_formats_and_processors_have_files_of_their_own(stored, monkeypatch):
    load_prepacked(stored, "int8")
    load_prepacked(stored, "bfloat16")
    monkeypatch.setattr(prepacked, "kind_of_kernels", lambda: "sse9-1")
    load_prepacked(stored, "int8")
    one, other, third, _ = files(stored)
    assert [re.sub("^[0-9a-f]{16}-", "", name) for name in (one, third)] == [
        one[17:],
        "int8-sse9-1.safetensors",
    ]
    assert one[17:].startswith("bfloat16-")
    assert other[17:].startswith("int8-")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"sha256": 1}', "[" * 100_000, '{"sha256": "' + "f" * 5000 + '"}', "known: ../../x"]
)
def test_what_is_written_about_the_weights_is_not_believed_where_it_is_odd(stored, text):
    known = stored.directory / "cache" / "weights.json"
    expected = load_prepacked(stored, "int8")
    right = known.read_text()
    known.write_text(json.dumps(json.loads(right) | {"sha256": text[7:]}) if text.startswith("known: ") else text)
    assert same(load_prepacked(stored, "int8"), expected)
    assert known.read_text() == right


@pytest.mark.parametrize("name", ["cache", "cache/weights.json"])
def test_links_out_of_the_folder_are_refused(stored, tmp_path, name):
    load_prepacked(stored, "int8")
    place, other = stored.directory / name, tmp_path / "elsewhere"
    place.rename(other)
    place.symlink_to(other)
    with pytest.raises(BadInputError, match=re.escape(f"{place}: a link out of its folder")):
        load_prepacked(stored, "int8")


@pytest.mark.parametrize("there", [True, False])
def test_missing_and_damaged_weights_are_named(stored, there):
    if there:
        stored.weights.write_bytes(b"x" * 100)
    else:
        stored.weights.unlink()
    with pytest.raises(BadInputError, match=r"model\.safetensors: (damaged|no such) weights file"):
        load_prepacked(stored, "int8")


def make_at_once(path, begin, found):
    begin.wait()
    bundle = load_prepacked(open_bundle(path), "int8")
    found.put([int(each.view(torch.uint8).long().sum()) for each in numbers(bundle) if each is not None])


def test_several_processes_at_once(stored):
    context = multiprocessing.get_context("fork")
    begin, found = context.Barrier(3), context.Queue()
    children = [context.Process(target=make_at_once, args=(stored.directory, begin, found)) for _ in range(3)]
    for child in children:
        child.start()
    several = [found.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    expected = [int(each.view(torch.uint8).long().sum()) for each in numbers(read_prepacked(stored, "int8"))]
    assert several == [expected] * 3
    assert len(files(stored)) == 2  # nothing unfinished


def test_several_threads_at_once(stored):
    found = []
    threads = [threading.Thread(target=lambda: found.append(load_prepacked(stored, "int8"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = read_prepacked(stored, "int8")
    assert [same(each, expected) for each in found] == [True] * 4
    assert len(files(stored)) == 2


def test_it_is_said_what_is_kept(stored, caplog):
    caplog.set_level(logging.INFO)
    load_prepacked(stored, "int8")
    assert re.search(r"safetensors: prepacked weights, kept for the next start: 0 MB", caplog.text)


def test_a_model_of_more_layers_than_weights_is_not_built(stored, monkeypatch):
    monkeypatch.setattr("transduce.bundle.directory.build_without_storage", no_longer)
    deeper = replace(stored, config=stored.config.model_copy(update={"encoder_layers": 1000}))
    with pytest.raises(BadInputError, match=r"asks for a model of 1,003 at least"):
        read_prepacked(deeper, "float32")
