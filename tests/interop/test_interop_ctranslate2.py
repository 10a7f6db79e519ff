"""A model exported to CTranslate2 computes and finds there what it does here."""

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.random_bundle import random_bundle
from transduce.cli import main
from transduce.config import BadInputError, TransduceError
from transduce.inference import Engine, Translator, load
from transduce.interop import export_ctranslate2
from transduce.interop.ctranslate2_reader import read_ctranslate2
from transduce.interop.ctranslate2_reference import open_ctranslate2
from transduce.text import Tokenizer

pytest_plugins = ["model_variants", "tiny_run"]

# The variants of a small model, by name.
SAYABLE = [
    "post",
    "pre",
    "none",
    "learned",
    "relative",
    "beside",
    "learned beside",
    "dot product",
    "multiplicative",
    "gelu",
    "gated",
    "output bias",
    "pre, bare",
    "post, normalized",
    "untied",
    "no source end",
    "widths",
    "layout",
]
REFUSED = [
    "every layer",
    "beside at every layer",
    "additive",
    "additive relative",
    "attention_window",
    "relative attention_window",
    "parameter attention",
    "average",
    "plain average",
    "mixture of experts",
    "switch",
    "no residual",
]
MORE = {
    "two vocabularies": {"source_vocab_size": 37},
    "multiplicative with bias": {"attention_bias": True, "compatibility": "multiplicative", "d_k": 3},
    "relative and wide values": {"positions": "relative", "max_relative_distance": 2, "d_k": 3, "d_v": 7},
    "untied beside": {
        "positions": "learned",
        "max_positions": 7,
        "position_combination": "concatenate",
        "tied_projection": False,
    },
}
# Of 2 to 6 symbols, as one variant has learned 7 positions.
SOURCES = [[4, 17, 30, 5], [29, 4], [11, 12, 13, 14, 15, 16], [7, 7, 7]]
TARGETS = [[6, 19], [28, 5, 4, 4, 21, 9], [8, 30, 29], [10, 11, 12, 13]]


@pytest.fixture
def ctranslate2():
    return pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")


def runtime(ctranslate2, folder):
    return ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)


@pytest.mark.parametrize("name", [*SAYABLE, *MORE])
def test_every_symbol_has_the_same_probability(ctranslate2, variants, tmp_path, name):
    changes = (variants | MORE)[name]
    ours = random_bundle(**changes)
    export_ctranslate2(ours, tmp_path / "out")
    sides = (ours.tokenizers.source, SOURCES), (ours.tokenizers.target, TARGETS)
    scored = runtime(ctranslate2, tmp_path / "out").score_batch(
        *([tokenizer.tokens(ids) for ids in rows] for tokenizer, rows in sides)
    )
    expected = Engine(ours.model, ours.tokenizers.special, "float32").score(SOURCES, TARGETS)
    assert [sum(each.log_probs) for each in scored] == pytest.approx(expected, abs=2e-4)
    assert [len(each.log_probs) for each in scored] == [len(target) + 1 for target in TARGETS]


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_express_is_refused_by_name(variants, tmp_path, name):
    changes = variants[name]
    with pytest.raises(BadInputError, match="CTranslate2 cannot express") as refused:
        export_ctranslate2(random_bundle(**changes), tmp_path / "out")
    assert any(f"{field} = {value!r}" in str(refused.value) for field, value in changes.items())
    assert not any(tmp_path.iterdir())


def test_every_variant_is_either_exported_or_refused(variants):
    assert {*SAYABLE, *REFUSED} == variants.keys()


@pytest.fixture(scope="module")
def exported(trained_run, tmp_path_factory):
    """The trained model as the verb exports it."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")
    folder = tmp_path_factory.mktemp("exports") / "made up"
    assert main._run(["export", str(trained_run), "--to", "ctranslate2", "--out", str(folder)]) == 0
    return folder


TEXTS = ["bamo dulu kari", "wemo", "luso gozu fepi wemo bamo", "kari kari", "dulu fepi", "gozu luso gozu kari wemo"]


def test_other_codes_than_its_own_tokenizer_are_refused(exported):
    with pytest.raises(BadInputError, match="--codes codes: the folder says itself how words are cut: leave it out"):
        read_ctranslate2(exported, Path("codes"))


def test_a_trained_model_translates_alike(ctranslate2, exported, trained_run):
    """Without a length penalty both search alike: until nothing open can be better than what has ended."""
    ours = load(trained_run, "float32")
    tokenizer = Tokenizer.load(exported / "tokenizer.json")
    sources = [tokenizer.tokens(ids) for ids in tokenizer.encode(TEXTS)]
    for beam in (1, 4):
        expected = ours.translate(TEXTS, beam, length_penalty_kind="none")
        limit = max(map(len, sources)) + 3
        found = runtime(ctranslate2, exported).translate_batch(
            sources, beam_size=beam, length_penalty=0, return_scores=True, max_decoding_length=limit
        )
        # What reaches its limit has to end with us, and is cut with them.
        pairs = [(mine, other) for mine, other in zip(expected, found, strict=True) if not mine.at_limit]
        assert len(pairs) > 3
        assert [tuple(other.hypotheses[0]) for _, other in pairs] == [mine.tokens for mine, _ in pairs]
        assert [other.scores[0] for _, other in pairs] == pytest.approx(
            [mine.log_probability for mine, _ in pairs], abs=1e-3
        )


def test_the_directory_is_complete(exported):
    assert {path.name for path in exported.iterdir()} == {
        "config.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.json",
        "certificate.json",
    }
    config = json.loads((exported / "config.json").read_text())
    assert config["add_source_eos"] is True
    assert (config["decoder_start_token"], config["eos_token"]) == ("<s>", "</s>")
    assert config["layer_norm_epsilon"] == 1e-6
    vocabulary = json.loads((exported / "shared_vocabulary.json").read_text())
    assert vocabulary == [*Tokenizer.load(exported / "tokenizer.json").vocabulary]


def test_outputs_without_a_symbol_are_the_same(ctranslate2, tmp_path):
    """As of a model that has learned little: the end is the most probable of all."""
    ours = random_bundle(output_bias=True)
    with torch.no_grad():
        ours.model.output_bias[2] += 30
    export_ctranslate2(ours, tmp_path / "out")
    lines = ["w4 w17 w30", "w29"]
    assert open_ctranslate2(tmp_path / "out").translate(lines, 4, 10) == ["", ""]
    assert [each.text for each in Translator(ours, "float32").translate(lines)] == ["", ""]


def test_two_vocabularies_have_a_file_each(ctranslate2, tmp_path):
    export_ctranslate2(random_bundle(source_vocab_size=37), tmp_path / "out")
    sizes = {
        side: len(json.loads((tmp_path / "out" / f"{side}_vocabulary.json").read_text()))
        for side in ("source", "target")
    }
    assert sizes == {"source": 37, "target": 31}


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for path in (tmp_path, tmp_path / "notes"):
        with pytest.raises(BadInputError, match="exists and is not empty"):
            export_ctranslate2(random_bundle(), path)
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(TransduceError, match=r"pip install 'transduce\[interop\]'"):
        export_ctranslate2(random_bundle(), tmp_path / "out")
