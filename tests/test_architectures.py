"""A second architecture takes the whole way through the package; nothing but its own files and two places knows it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from tests.bag_of_words import BagConfig, BagOfWords, install
from transduce.bundle import load_bundle, load_settings, save_bundle
from transduce.cli.main import _run
from transduce.config import BadInputError, read_run
from transduce.inference import load
from transduce.interop import export_ctranslate2
from transduce.models import Transformer, can_run_natively, heads_of
from transduce.training.checkpoint import write_manifest
from transduce.workflows.average import average
from transduce.workflows.inspect import inspect_model
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

BAG = '[model]\narchitecture = "bag"\nsize = 32\npenalty = 0.01\n'


@pytest.fixture
def bag_of_words(monkeypatch):
    install(monkeypatch)


@pytest.fixture
def run_file(tiny_run_file, tmp_path):
    """The tiny run file with a bag of words in the Transformer's place."""
    sections = tiny_run_file.read_text().split("\n[")
    text = "\n[".join(BAG.removeprefix("[") if each.startswith("model]") else each for each in sections)
    text = text.replace("max_steps = 400", "max_steps = 20").replace("log_every = 50", "log_every = 5")
    text = text.replace("checkpoint_every = 200", "checkpoint_every = 10")
    path = tmp_path / "bag.toml"
    path.write_text(
        text.replace('"train.', f'"{tiny_run_file.parent}/train.').replace('"dev.', f'"{tiny_run_file.parent}/dev.')
    )
    return path


@pytest.fixture
def config(bag_of_words, run_file):
    return read_run(run_file)


def weights(run, step=20):
    return load_file(run / f"checkpoints/step-{step}/model.safetensors")


def test_it_is_trained_resumed_searched_scored_and_evaluated(config, tmp_path, caplog):
    run = tmp_path / "run"
    caplog.set_level("DEBUG", "transduce")
    train_run(config, RunDirectory(run), resume=False)
    assert isinstance(config.model, BagConfig)
    assert "training cost, counted: " in caplog.text

    # Resumed from its middle, it ends bit for bit alike, and so do its metrics.
    shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(tmp_path / "again/checkpoints/step-20")
    train_run(config, RunDirectory(tmp_path / "again"), resume=True)
    one, other = weights(run), weights(tmp_path / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [[json.loads(line) for line in (root / "metrics.jsonl").open()] for root in (run, tmp_path / "again")]
    for mine, theirs in zip(*lines, strict=True):
        assert mine.pop("seconds") != (theirs.pop("seconds"), None)
        assert mine == theirs
        assert 0 < mine["auxiliary_loss"] < 0.01  # the penalty times the mean of squares, which tanh keeps under 1

    # The model directory, alone and as an ensemble; search, scores, samples, constraints.
    bundle = load_bundle(run)
    assert isinstance(bundle.model, BagOfWords)
    assert load_settings(run)[0] == bundle.config
    save_bundle(bundle, tmp_path / "copy")
    both = load([run, tmp_path / "copy"], "float32")
    single = load(run, "float32")
    assert "a bag of size 32" in repr(single)
    texts = ["bamo dulu", "fepi", "gozu kari luso wemo"]
    alone, together = (translator.translate(texts, beam_size=3, n_best=2) for translator in (single, both))
    assert [each.text for each in alone] == [each.text for each in together]
    for text, each in zip(texts, alone, strict=True):
        (score,) = single.score([text], [each.text])
        assert score == pytest.approx(each.log_probability, abs=1e-4)
    (needed,) = single.translate(["bamo"], must_contain=[["nal"]])
    assert "nal" in needed.text
    assert len(single.translate(["bamo"], sampling=True, seed=3, n_best=5)[0].alternatives) == 4
    for option in ({"return_alignment": True}, {"coverage_penalty": 0.2}):
        with pytest.raises(BadInputError, match="no encoder-decoder attention"):
            single.translate(texts, **option)
    maps = single.attend("bamo dulu", "ti")
    assert (maps.encoder, maps.decoder, maps.cross) == (None, None, None)
    with pytest.raises(BadInputError, match="no cross attention; it has none at all"):
        maps.of("cross")
    assert heads_of(load_bundle(run).model) == []
    assert _run(["attention", str(run), "--text", "bamo", "--out", str(tmp_path / "page.html")]) == 2
    assert not (tmp_path / "page.html").exists()
    assert average(RunDirectory(run), 2, tmp_path / "mean") == [10, 20]
    sources, references = [tmp_path / name for name in ("x.src", "x.trg")]
    sources.write_text("bamo\n")
    references.write_text("ti\n")
    assert _run(["evaluate", str(tmp_path / "mean"), "--source", str(sources), "--reference", str(references)]) == 0
    assert _run(["heads", str(run), "--source", str(sources), "--target", str(references)]) == 2
    for precision in ("bfloat16", "int8"):
        assert len(load(run, precision).translate(texts)) == 3
    assert inspect_model(str(run / "best"))["parameters"]["total"] == sum(x.numel() for x in one.values())


def test_a_run_file_is_told_what_is_wrong(bag_of_words, run_file):
    run_file.write_text(run_file.read_text().replace("size = 32", "size = 0\nd_model = 3"))
    with pytest.raises(BadInputError) as caught:
        read_run(run_file)
    size, unknown = caught.value.args
    assert size.endswith("model.size = 0: must be at least 1")
    assert "model.d_model: unknown key" in unknown


def test_an_unknown_architecture_is_named(run_file):
    with pytest.raises(BadInputError, match=r"line \d+: model.architecture = 'bag': must be 'transformer' or "):
        read_run(run_file)


def test_a_model_directory_of_an_unknown_architecture_is_named(config, tmp_path, monkeypatch):
    train_run(config, RunDirectory(tmp_path / "run"), resume=False)
    monkeypatch.undo()
    with pytest.raises(BadInputError, match=r"config.json: architecture = 'bag': must be 'transformer' or "):
        load_bundle(tmp_path / "run")


def test_without_attention_no_unknown_word_can_be_replaced(config, tmp_path):
    """Said before anything is trained; a vocabulary that spells everything has no such words."""
    asked = {"generation": config.generation.model_copy(update={"replace_unknown": True})}
    words = {"tokenizer": config.tokenizer.model_copy(update={"kind": "words"})}
    with pytest.raises(BadInputError, match=r"^replace unknown: the model has no encoder-decoder attention"):
        train_run(config.model_copy(update=asked | words), RunDirectory(tmp_path / "words"), resume=False)
    assert not [*(tmp_path / "words").glob("checkpoints/*")]
    short = {"train": config.train.model_copy(update={"max_steps": 1})}
    train_run(config.model_copy(update=asked | short), RunDirectory(tmp_path / "bytes"), resume=False)


def test_what_is_for_the_transformer_alone_says_so(config, tmp_path):
    train_run(config, RunDirectory(tmp_path / "run"), resume=False)
    bundle = load_bundle(tmp_path / "run")
    assert not can_run_natively(bundle.model)
    with pytest.raises(BadInputError, match="CTranslate2 has no model of architecture 'bag'"):
        export_ctranslate2(bundle, tmp_path / "exported")


def test_files_without_the_field_are_of_a_transformer(trained_run, tiny_run_file, tmp_path, caplog):
    """Run file, model directory and checkpoint of an older version: the training goes on, and nothing has changed."""
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    checkpoint = max(run.glob("checkpoints/step-*"), key=lambda path: int(path.name[5:]))
    for file, key in ((run / "best/config.json", "architecture"), (checkpoint / "state.json", "model.architecture")):
        values = json.loads(file.read_text())
        assert values.get("fixed", values).pop(key) == "transformer"
        file.write_text(json.dumps(values))
    write_manifest(checkpoint)
    text = (run / "run.toml").read_text()
    assert 'architecture = "transformer"\n' in text
    (run / "run.toml").write_text(text.replace('architecture = "transformer"\n', ""))
    assert isinstance(load_bundle(run).model, Transformer)
    caplog.set_level("DEBUG", "transduce")
    train_run(read_run(tiny_run_file), RunDirectory(run), resume=True)
    assert "nothing to do" in caplog.text
    assert "architecture" not in caplog.text
