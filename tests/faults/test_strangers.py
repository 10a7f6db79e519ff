"""A model directory from a stranger can at worst be refused; and nothing in the source could run what it holds."""

import ast
import json
import os
import struct
from pathlib import Path

import pytest
import torch

from transduce.bundle import Bundle, load_bundle, load_weights, save_bundle
from transduce.config import BadInputError, GenerationConfig, TransformerConfig
from transduce.data import read_corpus
from transduce.models import build
from transduce.text import Tokenizer, TokenizerPair, learn_bpe

SOURCE = Path(__file__).parents[2] / "src"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
# Modules whose reading runs what they read, and calls that do, or that hide such a module.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Reads other libraries' checkpoints: what is in them is looked through first (tests/interop/test_checkpoints.py).
GUARDED = SOURCE / "transduce" / "interop" / "checkpoints.py"
CALLS = {"torch.load", "torch.save", "np.load", "numpy.load", "eval", "exec", "__import__", "torch.hub.load"}
ENDS = {call.rpartition(".")[2] for call in CALLS}  # to write every call out takes seconds


@pytest.fixture(scope="module")
def bundle():
    tokenizer = learn_bpe(["the cat sat on the mat"] * 3, 277)
    config = TransformerConfig(
        encoder_layers=1, decoder_layers=1, d_model=14, d_ff=11, heads=2, vocab_size=tokenizer.vocab_size
    )
    return Bundle(build(config).eval(), TokenizerPair.of(tokenizer), GenerationConfig())


@pytest.fixture
def directory(bundle, tmp_path):
    save_bundle(bundle, tmp_path / "model")
    return tmp_path / "model"


def complaint(path):
    with pytest.raises(BadInputError) as caught:
        load_bundle(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def unsafe(tree):
    """What a module's syntax tree imports and calls of the above."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield node.module
        elif isinstance(node, ast.Call) and _last_name(node.func) in ENDS and ast.unparse(node.func) in CALLS:
            yield ast.unparse(node.func)


def _last_name(function):
    return getattr(function, "attr", getattr(function, "id", None))


def test_nothing_in_the_source_unpickles():
    modules = list(SOURCE.rglob("*.py"))
    assert len(modules) > 100
    found = {path: names for path in modules if (names := list(unsafe(ast.parse(path.read_text()))))}
    # An exception's name, and the one call, which torch keeps to weights.
    assert found == {GUARDED: ["pickle", "torch.load"]}
    calls = [node for node in ast.walk(ast.parse(GUARDED.read_text())) if isinstance(node, ast.Call)]
    (load,) = (call for call in calls if ast.unparse(call.func) == "torch.load")
    assert "weights_only=True" in ast.unparse(load)
    assert not [call for call in calls if ast.unparse(call.func).startswith("pickle.")]


@pytest.mark.parametrize("line", ["import pickle", "from dill import load", "torch.load(path)", "exec(text)"])
def test_such_a_line_would_be_found(line):
    assert list(unsafe(ast.parse(line)))


@pytest.mark.parametrize("field", ["d_model", "d_ff", "heads", "encoder_layers", "vocab_size"])
def test_a_size_beyond_all_use_is_refused_by_its_name(directory, field):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: 10**9}))
    assert f"config.json: {field} = 1000000000: must be at least 1 and at most " in complaint(directory)


def test_a_large_size_is_refused_before_any_memory_is_taken(directory):
    """2^20 x 2^20 numbers are 4 TiB."""
    path = directory / "config.json"
    sizes = {"d_model": 2**20, "d_ff": 2**20, "d_k": 2**19, "d_v": 2**19}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    assert "but the configuration asks for (" in complaint(directory)


def test_a_header_that_promises_more_than_the_file_holds_is_refused(directory):
    path = directory / "model.safetensors"
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "model.safetensors: damaged weights file" in complaint(directory)
    path.write_bytes(struct.pack("<Q", 2**62) + header)
    assert "model.safetensors: damaged weights file" in complaint(directory)


def test_weights_that_are_no_finite_numbers_are_refused(directory, bundle):
    state = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    name = min(state)
    state[name].view(-1)[3] = torch.inf
    from transduce.bundle import save_tensors

    save_tensors(state, directory / "model.safetensors")
    with pytest.raises(BadInputError, match=f"{name} has entries that are no finite numbers"):
        load_weights(build(bundle.config), directory / "model.safetensors")


@pytest.mark.parametrize("name", FILES)
def test_a_link_out_of_the_directory_is_not_followed(directory, name, tmp_path):
    outside = tmp_path / "secret"
    (directory / name).rename(outside)
    (directory / name).symlink_to(outside)
    assert f"{name}: a link out of its folder, to {outside}" in complaint(directory)
    (directory / name).unlink()
    outside.rename(directory / "inside")
    (directory / name).symlink_to("inside")
    load_bundle(directory)


@pytest.mark.parametrize("name", FILES[1:])
def test_nobody_waits_at_a_pipe(directory, name):
    (directory / name).unlink()
    os.mkfifo(directory / name)
    assert f"{name}: is no plain file" in complaint(directory)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_files_of_absurd_size_or_depth_are_refused(directory, name):
    (directory / name).write_text("[" * 100_000)
    assert name in complaint(directory)
    os.truncate(directory / name, 2**28)  # takes no room on disk
    assert f"{name}: has 268,435,456 bytes, more than such a file ever needs" in complaint(directory)


def test_symbols_that_the_embedding_would_not_have_are_refused(directory):
    path = directory / "tokenizer.json"
    stored = json.loads(path.read_text())
    stored["model"]["vocab"]["t"] = 2**31
    path.write_text(json.dumps(stored))
    assert "its symbols are not numbered from 0, each once" in complaint(directory)


def test_a_tokenizer_that_lets_a_text_explode_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    learn_bpe(["the cat"], 300).save(path)
    stored = json.loads(path.read_text())
    step = {"type": "Replace", "pattern": {"String": "t"}, "content": "tt"}
    stored["normalizer"] = {"type": "Sequence", "normalizers": [step] * 40}
    path.write_text(json.dumps(stored))
    with pytest.raises(BadInputError, match="its normalizer replaces so much that a text could grow without bounds"):
        Tokenizer.load(path)


def test_a_line_without_end_in_a_small_compressed_file_is_refused(tmp_path):
    import gzip

    from transduce.config import Corpus

    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * (2**24 + 1)))
    (tmp_path / "b").write_text("b\n")
    with pytest.raises(BadInputError, match=r"a\.gz line 1: is longer than 16,777,216 bytes"):
        list(read_corpus(Corpus(source="a.gz", target="b"), tmp_path))
