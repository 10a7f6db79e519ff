import json
import os
import subprocess
import sys

import pytest
import torch

from transduce.bundle import (
    Bundle,
    find_model,
    load_bundle,
    load_weights,
    read_tensors,
    save_bundle,
    save_tensors,
)
from transduce.config import BadInputError, GenerationConfig, TransformerConfig
from transduce.config.files import ANEW
from transduce.models import Tokens, build
from transduce.text import Tokenizer, TokenizerPair, learn_bpe

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
SIDES = ["tokenizer.source.json", "tokenizer.target.json"]


@pytest.fixture(scope="module")
def bundle():
    torch.manual_seed(17)
    tokenizer = learn_bpe(["the cat sat on the mat"] * 3, 277)
    config = TransformerConfig(
        encoder_layers=1,
        decoder_layers=2,
        d_model=14,
        d_ff=11,
        heads=2,
        d_k=5,
        d_v=3,
        vocab_size=tokenizer.vocab_size,
        norm="pre",
        attention_bias=True,
    )
    return Bundle(build(config).eval(), TokenizerPair.of(tokenizer), GenerationConfig(beam_size=3, length_penalty=0.7))


@pytest.fixture
def directory(bundle, tmp_path):
    save_bundle(bundle, tmp_path / "model")
    return tmp_path / "model"


def loss(model):
    """The sums of a forward pass over two sentences of different lengths."""
    source = Tokens(torch.tensor([[5, 7, 11, 2], [13, 2, 0, 0]]), torch.tensor([4, 2]))
    target = Tokens(torch.tensor([[1, 17, 19], [1, 23, 0]]), torch.tensor([3, 2]))
    with torch.no_grad():
        return model(source, target, torch.tensor([[17, 19, 2], [23, 2, 0]]))


def complaint(path):
    with pytest.raises(BadInputError) as caught:
        load_bundle(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class TestRoundTrip:
    def test_the_four_files(self, directory):
        assert sorted(file.name for file in directory.iterdir()) == FILES

    def test_weights_are_equal_bit_for_bit(self, bundle, directory):
        saved, loaded = bundle.model.state_dict(), load_bundle(directory).model.state_dict()
        assert saved.keys() == loaded.keys()
        for name, tensor in saved.items():
            assert torch.equal(tensor.view(torch.int32), loaded[name].view(torch.int32)), name

    def test_outputs_are_the_same(self, bundle, directory):
        loaded = load_bundle(directory)
        assert not loaded.model.training
        assert loss(loaded.model).nll.item() == loss(bundle.model).nll.item()

    def test_settings_and_tokenizer_are_the_same(self, bundle, directory):
        loaded = load_bundle(directory)
        assert loaded.config == bundle.config
        assert loaded.generation == bundle.generation
        assert loaded.tokenizers.shared
        assert loaded.tokenizers.source.to_json() == bundle.tokenizers.source.to_json()

    def test_numbers_that_floats_can_hardly_hold(self, bundle, tmp_path):
        first = bundle.model.state_dict()
        name = next(iter(first))
        odd = first[name].clone()
        odd.view(-1)[:3] = torch.tensor([-0.0, 1e-45, 3.4028235e38])
        save_tensors({name: odd}, tmp_path / "odd.safetensors")
        assert torch.equal(
            read_tensors(tmp_path / "odd.safetensors")[name].view(torch.int32), odd.contiguous().view(torch.int32)
        )


class TestTwoVocabularies:
    FILES = ("config.json", "generation_config.json", "model.safetensors", *SIDES)

    @pytest.fixture
    def two(self, bundle):
        target = bundle.tokenizers.target
        source = learn_bpe(["die Katze sitzt auf der Matte"] * 3, 311)
        config = bundle.config.model_copy(
            update={"source_vocab_size": source.vocab_size, "vocab_size": target.vocab_size}
        )
        torch.manual_seed(19)
        return Bundle(build(config).eval(), TokenizerPair(source, target), GenerationConfig())

    @pytest.fixture
    def there(self, two, tmp_path):
        save_bundle(two, tmp_path / "two")
        return tmp_path / "two"

    def test_each_side_has_its_file(self, there):
        assert sorted(file.name for file in there.iterdir()) == list(self.FILES)

    @pytest.mark.parametrize("own", [False, True])
    def test_one_vocabulary_in_two_files(self, bundle, tmp_path, own):
        # With embeddings that both share, and with two matrices, as models have that were trained so.
        (tmp_path / "copy.json").write_text(bundle.tokenizers.target.to_json())
        pair = TokenizerPair(Tokenizer.load(tmp_path / "copy.json"), bundle.tokenizers.target)
        config = bundle.config.model_copy(update=pair.sizes(shared=not own))
        save_bundle(Bundle(build(config).eval(), pair, GenerationConfig()), tmp_path / "alike")
        loaded = load_bundle(tmp_path / "alike")
        assert loaded.config == config
        assert loaded.tokenizers.shared
        assert sorted(file.name for file in (tmp_path / "alike").iterdir()) == list(self.FILES)

    def test_both_come_back_on_their_sides(self, two, there):
        loaded = load_bundle(there)
        assert not loaded.tokenizers.shared
        assert loaded.tokenizers.source.to_json() == two.tokenizers.source.to_json()
        assert loaded.tokenizers.target.to_json() == two.tokenizers.target.to_json()
        assert loaded.config == two.config
        assert loss(loaded.model).nll.item() == loss(two.model).nll.item()

    def test_the_other_kind_of_tokenizer_leaves_nothing_behind(self, bundle, two, there):
        save_bundle(bundle, there)
        assert sorted(file.name for file in there.iterdir()) == FILES
        save_bundle(two, there)
        assert sorted(file.name for file in there.iterdir()) == list(self.FILES)

    @pytest.mark.parametrize("name", SIDES)
    def test_a_lost_or_damaged_one_is_named(self, there, name):
        (there / name).write_bytes((there / name).read_bytes()[:-7])
        assert complaint(there).startswith(f"{there / name}: ")
        (there / name).unlink()
        assert complaint(there) == f"{there / name}: no such tokenizer file: {ANEW}"

    @pytest.mark.parametrize(("name", "who"), [(SIDES[0], "source's tokenizer"), (SIDES[1], "tokenizer")])
    def test_one_of_another_size_is_named(self, two, there, name, who):
        other = learn_bpe(["a"], 997)
        before = dict(zip(SIDES, (two.tokenizers.source, two.tokenizers.target), strict=True))[name]
        assert other.vocab_size != before.vocab_size
        other.save(there / name)
        assert complaint(there) == (
            f"{there}: the {who} has {other.vocab_size} symbols but the model {before.vocab_size} symbols: "
            f"they and config.json are not of the same model"
        )

    def test_exchanged_ones_are_refused(self, two, there):
        TokenizerPair(two.tokenizers.target, two.tokenizers.source).save(there)
        assert "are not of the same model" in complaint(there)

    def test_a_model_that_shares_is_told_from_one_that_does_not(self, bundle, two, there, directory):
        bundle.tokenizers.save(there)
        source = two.tokenizers.source.vocab_size
        assert complaint(there).startswith(
            f"{there}: the source's tokenizer has none of its own but the model {source} symbols: "
        )
        two.tokenizers.save(directory)
        assert complaint(directory).startswith(
            f"{directory}: the source's tokenizer has {source} symbols but the model none of its own: "
        )

    def test_weights_without_the_sources_matrix_are_refused(self, there):
        weights = there / "model.safetensors"
        tensors = read_tensors(weights)
        del tensors["source_embedding.weight"]
        save_tensors(tensors, weights)
        assert complaint(there) == (
            f"{weights}: weights of another model: source_embedding.weight is in only one of the two"
        )

    def test_a_model_of_before_there_were_two_is_read(self, bundle, directory):
        config = json.loads((directory / "config.json").read_text())
        del config["source_vocab_size"]
        (directory / "config.json").write_text(json.dumps(config))
        assert load_bundle(directory).config == bundle.config


def best_of_a_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.toml").write_text("")
    return run / "best"


class TestInterrupted:
    """A newer model takes an older one's place by two renames; a crash may come between them."""

    def test_the_older_one_is_found_and_outlives_the_next_saving(self, bundle, tmp_path, monkeypatch):
        best = best_of_a_run(tmp_path)
        save_bundle(bundle, best)
        best.rename(best.with_name("best.older"))
        assert find_model(tmp_path / "run") == best.with_name("best.older")
        monkeypatch.setattr("transduce.bundle.directory.save_tensors", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            save_bundle(bundle, best)
        assert load_bundle(tmp_path / "run").config == bundle.config

    def test_the_next_saving_tidies_up(self, bundle, tmp_path):
        best = best_of_a_run(tmp_path)
        save_bundle(bundle, best)
        best.rename(best.with_name("best.older"))
        save_bundle(bundle, best)
        assert sorted(path.name for path in best.parent.iterdir()) == ["best", "run.toml"]

    @pytest.mark.parametrize("model", ["m", "best"])
    def test_neighbours_of_a_model_elsewhere_are_nobody_s_to_delete(self, bundle, tmp_path, model):
        neighbours = [f"{model}.older", f"{model}.unfinished"]
        for name in neighbours:
            (tmp_path / name).mkdir()
            (tmp_path / name / "mine").write_text("mine")
        for _ in range(2):
            save_bundle(bundle, tmp_path / model)
            assert sorted(path.name for path in tmp_path.iterdir()) == [model, *neighbours]
        assert all((tmp_path / name / "mine").is_file() for name in neighbours)


class TestFindModel:
    def test_a_model_directory_is_itself(self, directory):
        assert find_model(directory) == directory

    def test_a_run_directory_means_its_best(self, bundle, tmp_path):
        save_bundle(bundle, tmp_path / "run" / "best")
        (tmp_path / "run" / "run.toml").write_text("")
        assert find_model(tmp_path / "run") == tmp_path / "run" / "best"
        assert load_bundle(tmp_path / "run").config == bundle.config

    def test_nothing_is_there(self, tmp_path):
        assert complaint(tmp_path / "none") == f"{tmp_path / 'none'}: no such model directory"

    def test_a_name_that_is_no_utf8(self, directory, tmp_path):
        """The libraries of weights and tokenizers said that the files are damaged."""
        named = directory.rename(tmp_path / os.fsdecode(b"d\xe9"))
        assert complaint(named) == f"{named}: the name is no UTF-8: rename the folder"

    def test_a_file(self, directory):
        assert complaint(directory / "config.json").startswith(f"{directory / 'config.json'}: is a file")

    def test_a_run_without_a_best_yet(self, tmp_path):
        (tmp_path / "checkpoints").mkdir()
        message = complaint(tmp_path)
        assert message.startswith(f"{tmp_path}: neither a model directory")
        assert "best" in message

    def test_a_folder_of_models_and_runs(self, bundle, tmp_path):
        places = [tmp_path / name for name in ("a", "b/best", "c", "d/best")]
        for place in places[:3]:
            save_bundle(bundle, place)
        runs = [tmp_path / name for name in "abc"]
        assert complaint(tmp_path).endswith(f": there are some in it: {', '.join(map(str, runs))}")
        save_bundle(bundle, places[3])
        assert complaint(tmp_path).endswith(f"{runs[2]}, ...")


def of_another_library(folder, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


class TestWhatIsNone:
    """Each is told what it is, and what to do with it."""

    @pytest.mark.parametrize(
        ("files", "what", "imported"),
        [
            ({"model.bin": "", "config.json": '{"add_source_bos": false}'}, "a model of CTranslate2", "m"),
            ({"config.json": '{"model_type": "marian"}'}, "a model of transformers", "m"),
            ({"config.yaml": "", "best.ckpt": ""}, "a model of JoeyNMT", "m"),
            ({"model.npz": "", "vocab.yml": ""}, "a folder with a model of Marian", "m/model.npz"),
            (
                {"checkpoint_best.pt": "", "dict.en.txt": ""},
                "a folder with a checkpoint of PyTorch",
                "m/checkpoint_best.pt",
            ),
        ],
    )
    def test_a_model_of_another_library(self, tmp_path, files, what, imported):
        message = complaint(of_another_library(tmp_path / "m", files))
        assert f"is {what}: transduce import {tmp_path / imported} --out MODEL" in message

    def test_what_was_exported_for_onnx(self, tmp_path):
        files = {"config.json": '{"model_type": "marian"}', "onnx/encoder_model.onnx": ""}
        assert "a model for ONNX Runtime, which no verb reads" in complaint(of_another_library(tmp_path / "m", files))

    def test_a_file(self, directory, tmp_path):
        assert complaint(directory / "model.safetensors").endswith(f": give the folder that it is in, {directory}")
        for name, said in (("r.toml", f"transduce train {tmp_path}/r.toml"), ("m.npz", "it is a model of Marian")):
            (tmp_path / name).touch()
            assert said in complaint(tmp_path / name)

    def test_a_run_without_a_checkpoint(self, tmp_path):
        (tmp_path / "run.toml").touch()
        assert complaint(tmp_path).endswith("nor a run that has a best model yet")  # a run file beside other things
        (tmp_path / "store").mkdir()
        assert complaint(tmp_path).endswith(f": transduce train {tmp_path / 'run.toml'} --resume trains it")

    def test_a_model_directory_whose_settings_are_lost(self, directory):
        (directory / "config.json").unlink()
        assert complaint(directory).endswith(ANEW)


class TestDamage:
    @pytest.mark.parametrize("name", FILES)
    def test_a_missing_file_is_named(self, directory, name):
        (directory / name).unlink()
        message = complaint(directory)
        assert str(directory) in message
        assert name in message

    @pytest.mark.parametrize("name", FILES)
    def test_a_truncated_file_is_named(self, directory, name):
        whole = (directory / name).read_bytes()
        for length in (0, 7, len(whole) // 2, len(whole) - 3):
            (directory / name).write_bytes(whole[:length])
            assert str(directory / name) in complaint(directory)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("content", [b"[]", b"null", b"\xff\xfe\x00", b"<html>Not Found</html>"])
    def test_another_content_is_named(self, directory, name, content):
        (directory / name).write_bytes(content)
        assert complaint(directory).startswith(f"{directory / name}: ")

    @pytest.mark.parametrize("name", FILES[1:])
    def test_a_directory_in_a_files_place_is_named(self, directory, name):
        (directory / name).unlink()
        (directory / name).mkdir()
        assert str(directory / name) in complaint(directory)

    @pytest.mark.parametrize(
        ("name", "values", "expected"),
        [
            ("config.json", {"d_modl": 17}, "d_modl = 17"),
            ("config.json", {"dropout": 7}, "dropout = 7"),
            ("config.json", {"norm": "sandwich"}, "norm = 'sandwich'"),
            ("generation_config.json", {"beams": 17}, "beams = 17"),
            ("generation_config.json", {"beam_size": 0}, "beam_size = 0"),
        ],
    )
    def test_a_wrong_setting_is_named(self, directory, name, values, expected):
        change(directory / name, **values)
        assert complaint(directory).startswith(f"{directory / name}: {expected}")

    def test_settings_that_do_not_fit_each_other_are_explained_without_the_rest(self, directory):
        change(directory / "config.json", heads=3, d_k=0)
        assert complaint(directory).startswith(f"{directory / 'config.json'}: heads = 3 does not divide d_model = 14")

    def test_a_file_that_holds_no_table_is_explained(self, directory):
        (directory / "config.json").write_text("[]")
        assert complaint(directory).startswith(f"{directory / 'config.json'}: must be a table of keys")


class TestOfAnotherModel:
    def test_a_tokenizer_of_another_size(self, bundle, directory):
        other = learn_bpe(["a"], 997)
        other.save(directory / "tokenizer.json")
        sizes = other.vocab_size, bundle.tokenizers.target.vocab_size
        expected = (
            f"{directory}: the tokenizer has %d symbols but the model %d symbols: they and config.json are not of"
        )
        assert complaint(directory).startswith(expected % sizes)

    @pytest.mark.parametrize("transposed", ["encoder.0.feed_forward.inner.weight", "embedding.weight"])
    def test_a_tensor_of_another_shape(self, directory, transposed):
        weights = directory / "model.safetensors"
        tensors = read_tensors(weights)
        rows, columns = tensors[transposed].shape
        save_tensors(tensors | {transposed: tensors[transposed].T}, weights)
        assert complaint(directory) == (
            f"{weights}: {transposed} has shape ({columns}, {rows}) but the configuration asks for ({rows}, {columns})"
        )

    @pytest.mark.parametrize("missing", [True, False])
    def test_a_tensor_too_few_or_too_many(self, directory, missing):
        weights = directory / "model.safetensors"
        tensors = read_tensors(weights)
        name = "decoder_norm.bias" if missing else "decoder_norm.scale"
        if missing:
            del tensors[name]
        else:
            tensors[name] = torch.zeros(14)
        save_tensors(tensors, weights)
        assert complaint(directory) == f"{weights}: weights of another model: {name} is in only one of the two"

    def test_a_model_of_another_depth(self, directory):
        change(directory / "config.json", encoder_layers=2)
        message = complaint(directory)
        assert message.startswith(f"{directory / 'model.safetensors'}: weights of another model: encoder.1.")

    @pytest.mark.parametrize(
        ("settings", "least"),
        [
            ({"feed_forward": "mixture_of_experts", "experts": 4000, "d_model": 4, "d_ff": 1, "heads": 1}, 12_000),
            (
                {"architecture": "recurrent", "feed_forward": "mixture_of_experts", "experts": 4000, "d_ff": 1},
                4_003,
            ),
            ({"architecture": "convolutional", "encoder_convolutions": [[1, 1, 999]]}, 1_019),
        ],
    )
    def test_a_model_of_more_layers_or_experts_than_weights_is_not_built(self, directory, monkeypatch, settings, least):
        def built(*_):
            raise AssertionError("a model was built")

        monkeypatch.setattr("transduce.bundle.directory.build_without_storage", built)
        layers = {} if "encoder_convolutions" in settings else {"encoder_layers": 2, "decoder_layers": 1}
        size = json.loads((directory / "config.json").read_text())["vocab_size"]
        (directory / "config.json").write_text(json.dumps(settings | layers | {"vocab_size": size}))
        stored = len(read_tensors(directory / "model.safetensors"))
        message = f"{stored} tensors, and config.json asks for a model of {least:,} at least"
        assert complaint(directory).endswith(f"weights of another model: {message}")

    def test_a_refused_file_leaves_the_model_as_it_was(self, bundle, directory):
        model = build(bundle.config)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        tensors = read_tensors(directory / "model.safetensors")
        last = sorted(tensors)[-1]
        save_tensors(tensors | {last: torch.zeros(3)}, directory / "model.safetensors")
        with pytest.raises(BadInputError, match="has shape"):
            load_weights(model, directory / "model.safetensors")
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class TestSavingAgain:
    def test_leaves_nothing_of_the_older_one(self, bundle, directory):
        (directory / "leftover.txt").write_text("of an older model")
        other = Bundle(build(bundle.config), bundle.tokenizers, GenerationConfig(beam_size=7))
        save_bundle(other, directory)
        assert sorted(file.name for file in directory.iterdir()) == FILES
        assert [file.name for file in directory.parent.iterdir()] == [directory.name]
        loaded = load_bundle(directory)
        assert loaded.generation.beam_size == 7
        assert torch.equal(loaded.model.embedding.weight, other.model.embedding.weight)

    def test_a_crash_before_it_is_complete_leaves_the_older_one(self, bundle, directory, monkeypatch):
        def full_disk(*_):
            raise OSError("no space left on device")

        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
            patch.setattr("transduce.bundle.directory.save_tensors", full_disk)
            save_bundle(bundle, directory)
        assert loss(load_bundle(directory).model).nll.item() == loss(bundle.model).nll.item()
        save_bundle(bundle, directory)  # what the crash left behind is in nobody's way
        assert [file.name for file in directory.parent.iterdir()] == [directory.name]

    @pytest.mark.parametrize("name", ["proj", "best"])
    def test_a_folder_that_is_no_model_keeps_its_files(self, bundle, tmp_path, name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text("mine")
        with pytest.raises(BadInputError, match=f"{name}: exists and is not empty: choose another place"):
            save_bundle(bundle, tmp_path / name)
        (tmp_path / name / "config.json").write_text('{"model_type": "marian"}')  # of another library
        with pytest.raises(BadInputError, match="exists and is not empty"):
            save_bundle(bundle, tmp_path / name)
        assert (tmp_path / name / "main.py").read_text() == "mine"

    def test_the_current_folder_keeps_its_place(self, bundle, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(BadInputError, match="is the current folder"):
            save_bundle(bundle, ".")

    def test_a_damaged_best_of_a_run_is_replaced(self, bundle, tmp_path):
        (tmp_path / "run" / "best").mkdir(parents=True)
        (tmp_path / "run" / "run.toml").touch()
        (tmp_path / "run" / "best" / "model.safetensors").touch()
        save_bundle(bundle, str(tmp_path / "run" / "best"))
        assert load_bundle(str(tmp_path / "run")).config == bundle.config

    def test_makes_the_folders_above(self, bundle, tmp_path):
        save_bundle(bundle, tmp_path / "a" / "b" / "model")
        assert load_bundle(tmp_path / "a" / "b" / "model").config == bundle.config


def test_loading_draws_no_weights_in_vain(directory):
    """Any draw moves the state of the generator."""
    before = torch.get_rng_state()
    load_bundle(directory)
    assert torch.equal(torch.get_rng_state(), before)
    build(load_bundle(directory).config)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_key_that_would_end_the_line_is_quoted(directory):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"a\r\nerror: \x1b[31m": 1}))
    with pytest.raises(BadInputError) as caught:
        load_bundle(directory)
    assert str(caught.value).endswith(r"config.json: 'a\r\nerror: \x1b[31m' = 1: unknown key")


def test_loading_leaves_the_compiler_alone(directory):
    """To compute anything on tensors without storage, torch loads its compiler, which takes a second."""
    script = f"""
import sys
from pathlib import Path
from transduce.bundle import load_bundle
load_bundle(Path({str(directory)!r}))
assert "torch" in sys.modules
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_others_may_read_the_weights_as_they_may_the_other_files(bundle, tmp_path, mask):
    before = os.umask(mask)
    try:
        save_bundle(bundle, tmp_path / "model")
    finally:
        os.umask(before)
    modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys(FILES, 0o666 & ~mask)


def test_weights_that_may_not_be_read_are_not_said_to_be_missing(directory, monkeypatch):
    weights, opened = directory / "model.safetensors", type(directory).open

    def refuse(path, *arguments):
        if path == weights:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments)

    monkeypatch.setattr(type(directory), "open", refuse)
    with pytest.raises(BadInputError, match=r"model\.safetensors: cannot be read: Permission denied"):
        read_tensors(weights)


def test_what_cannot_be_written_leaves_nothing_behind(bundle, tmp_path, monkeypatch):
    def fill(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transduce.bundle.directory.save_tensors", fill)
    with pytest.raises(OSError, match="No space left"):
        save_bundle(bundle, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
