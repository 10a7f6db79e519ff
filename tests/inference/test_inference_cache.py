"""Translators that keep their weights beside the model write and score the same, bit for bit."""

import io
import sys

import pytest
import torch

from tests.random_bundle import random_bundle
from transduce.bundle import PrepackedBundle, load_bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError
from transduce.inference import Translator, load
from transduce.inference import loading as loading_module
from transduce.serving.process import ModelProcess
from transduce.serving.settings import ServedModel, ServeSettings

TEXTS = ["w4 w5 w6", "w7", "", "w9 w10 w11 w12 w13 w14"]


@pytest.fixture
def model(tmp_path):
    save_bundle(random_bundle(positions="learned", max_positions=61), tmp_path / "model")
    return tmp_path / "model"


def outputs(translator):
    found = translator.translate(TEXTS, n_best=3, max_length=9, return_alignment=True)
    several = [each for one in found for each in (one, *one.alternatives)]
    scores = translator.score(["w4 w5 w6", "w7"], ["w8 w9", "w10"])
    return [(each.text, each.score, each.log_probability, each.alignment) for each in several], scores


def kept(model):
    return sorted((model / "cache").glob("*.safetensors"))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_outputs_and_scores_are_the_same(model, precision):
    expected = outputs(Translator(load_bundle(model), precision, torch.device("cpu")))
    for cache in (False, True, True):
        translator = load(model, precision, "cpu", cache=cache)
        assert outputs(translator) == expected
        assert f"{precision} on cpu" in repr(translator)
    assert len(kept(model)) == 1


@pytest.mark.usefixtures("built")
def test_each_model_of_an_ensemble_has_its_own(model, tmp_path):
    other = tmp_path / "other"
    save_bundle(random_bundle(norm="pre"), other)
    expected = outputs(Translator([load_bundle(model), load_bundle(other)], "int8", torch.device("cpu")))
    for _ in range(2):
        assert outputs(load([model, other], "int8", "cpu", cache=True)) == expected
    assert len(kept(model)) == len(kept(other)) == 1


def test_what_pytorch_computes_has_none(model, monkeypatch, caplog):
    monkeypatch.setattr("transduce.kernels.native._library", lambda: None)
    expected = outputs(Translator(load_bundle(model), "int8", torch.device("cpu")))
    assert outputs(load(model, "int8", "cpu", cache=True)) == expected
    assert caplog.messages[1].startswith("nothing is kept in a cache: ")
    assert not (model / "cache").exists()


@pytest.mark.usefixtures("built")
def test_one_that_the_kernels_do_not_compute_leaves_all_to_pytorch(model, tmp_path, caplog):
    other = tmp_path / "other"
    save_bundle(random_bundle(positions="relative"), other)
    load([model, other], "float32", "cpu", cache=True)
    assert caplog.messages == [
        "nothing is kept in a cache: this model is not run by the C++ kernels, whose weights that has"
    ]


def test_cache_is_true_or_false(model):
    with pytest.raises(BadInputError, match="cache"):
        load(model, cache="yes")


@pytest.mark.usefixtures("built")
def test_the_command_keeps_it_and_says_so_once(model, monkeypatch, capfdbinary):
    shown = []
    for options in ([], ["--cache"], ["--cache"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"w4 w5\nw7\n")))
        arguments = ["translate", str(model), "--precision", "int8", "--max-length", "5", "--scores", *options]
        assert main._run(arguments) == 0
        sys.stdout.flush()
        shown.append(capfdbinary.readouterr())
    without, first, second = shown
    assert without.out == first.out == second.out
    assert b"prepacked weights, kept for the next start" in first.err
    assert without.err == second.err


def test_a_served_model_is_loaded_with_it(model):
    settings = ServeSettings((ServedModel("en", "de", model),), cache=True)
    assert ModelProcess(settings.models[0], settings)._arguments["cache"] is True


@pytest.mark.usefixtures("built")
def test_no_plain_model_is_read_where_none_is_needed(model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        loading_module, "Translator", lambda bundles, *_, **__: seen.extend(map(type, bundles)) or "translator"
    )
    assert load(model, "int8", "cpu") == "translator"
    assert seen == [PrepackedBundle]
