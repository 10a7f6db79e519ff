"""``--replace-unknown`` and ``--dictionary`` of ``translate`` and ``evaluate``: as the same arguments in Python."""

import io
import json
import sys

import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.cli import main
from transduce.config import GenerationConfig, preset
from transduce.inference import load
from transduce.models import build
from transduce.text import TokenizerPair, learn_tokenizer

TEXTS = ["a Zebulon b", "Xanthippe c", "d e a b c"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with random weights over words, which likes its unknown symbol."""
    tokenizer = learn_tokenizer("words", ["a b c d e"], 9)
    torch.manual_seed(3)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 10, "d_ff": 13, "heads": 2, "output_bias": True}
    built = build(preset("base", {**sizes, "vocab_size": tokenizer.vocab_size}))
    built.output_bias.data[tokenizer.special.unknown] = 3.0
    path = tmp_path_factory.mktemp("words") / "model"
    save_bundle(Bundle(built, TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=2)), path)
    return path


@pytest.fixture
def dictionary(tmp_path):
    path = tmp_path / "entries.tsv"
    path.write_text("Zebulon\tSebulon\na\tein\nXanthippe\tXanthippen\nc\tzeh\n", encoding="utf-8")
    return path


@pytest.fixture
def translate(model, monkeypatch, capfdbinary):
    def run(*options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
        status = main._run(["translate", str(model), "--precision", "float32", *options])
        sys.stdout.flush()
        shown = capfdbinary.readouterr()
        return status, shown.out.decode().splitlines(), shown.err.decode()

    return run


def test_lines_are_what_python_gives(model, translate, dictionary):
    translator = load(model, "float32")
    free, asked = ([each.text for each in translator.translate(TEXTS, replace_unknown=on)] for on in (False, True))
    with_entries = [each.text for each in translator.translate(TEXTS, replace_unknown=True, dictionary=dictionary)]
    assert translate()[:2] == translate("--no-replace-unknown")[:2] == (0, free)
    assert translate("--replace-unknown")[:2] == (0, asked)
    assert translate("--replace-unknown", "--dictionary", str(dictionary))[:2] == (0, with_entries)
    assert len({*map(tuple, (free, asked, with_entries))}) == 3


def test_objects_show_the_words_and_the_symbols_and_alternatives_too(model, translate, dictionary):
    options = ["--replace-unknown", "--dictionary", str(dictionary), "--alignment", "--n-best", "2"]
    status, lines, _ = translate(*options, "--format", "jsonl")
    expected = load(model, "float32").translate(
        TEXTS, replace_unknown=True, dictionary=dictionary, return_alignment=True, n_best=2
    )
    assert status == 0
    for line, output in zip(map(json.loads, lines), expected, strict=True):
        for shown, each in ((line, output), (line["alternatives"][0], output.alternatives[0])):
            assert (shown["text"], tuple(shown["tokens"])) == (each.text, each.tokens)
            assert shown["alignment"] == " ".join(f"{source}-{target}" for source, target in each.alignment)
    assert any("<unk>" in json.loads(line)["tokens"] for line in lines)


def test_a_test_set_is_scored_with_the_words(model, tmp_path, dictionary, capsys):
    source, reference = tmp_path / "test.src", tmp_path / "test.trg"
    source.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    wanted = load(model, "float32").translate(TEXTS, replace_unknown=True, dictionary=dictionary)
    reference.write_text("\n".join(each.text for each in wanted) + "\n", encoding="utf-8")
    arguments = ["evaluate", str(model), "--precision", "float32", "--source", str(source), "--reference"]
    arguments += [str(reference), "--metric", "exact", "--json"]
    scores = []
    for options in ([], ["--replace-unknown"], ["--replace-unknown", "--dictionary", str(dictionary)]):
        assert main._run([*arguments, *options]) == 0
        scores.append(json.loads(capsys.readouterr().out)[0]["value"])
    assert scores[0] == 0
    assert scores[1] < scores[2] == 100


def test_a_damaged_dictionary_is_named_before_anything_is_done(translate, tmp_path):
    path = tmp_path / "entries.tsv"
    path.write_text("a b\n")
    status, lines, error = translate("--replace-unknown", "--dictionary", str(path))
    assert (status, lines) == (2, [])
    assert error.startswith(f"error: {path} line 1: is no entry of a dictionary")
