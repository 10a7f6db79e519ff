"""Our models as MarianMT folders: there and back to the last bit, the same logits there, the rest refused by name."""

import json
import logging

import pytest
import torch

from tests.random_bundle import random_bundle
from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig
from transduce.interop import export_marianmt, open_marianmt, read_marianmt
from transduce.interop.logits import compare_logits
from transduce.models import build

pytest_plugins = ["model_variants", "tiny_run"]

SAYABLE = ["post", "gelu", "untied"]
# Its norms add 1e-5, and its sines come first.
EXACT = {"norm_epsilon": 1e-5, "sinusoid_layout": "concatenated"}
BACK = {
    "plain": {},
    "biases": {"attention_bias": True, "output_bias": True},
    "two vocabularies": {"source_vocab_size": 37, "activation": "silu"},
    "untied": {"tied_projection": False, "scale_embedding": False},
}
PAIRS = [([5, 6, 7], [8, 9, 10, 11]), ([20, 4], [5])]


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("transformers", reason="transformers is missing: pip install 'transduce[interop]'")


@pytest.mark.parametrize("name", BACK)
def test_there_and_back_is_the_same_to_the_last_bit(tmp_path, name):
    ours = random_bundle(**EXACT, **BACK[name])
    export_marianmt(ours, tmp_path / "out")
    back = read_marianmt(tmp_path / "out")
    assert back.config.model_copy(update={"label_smoothing": ours.config.label_smoothing}) == ours.config
    found = back.model.state_dict()
    assert found.keys() == ours.model.state_dict().keys()
    assert all(torch.equal(tensor, found[key]) for key, tensor in ours.model.state_dict().items())
    texts = ["w5 w30 w6", "w4 unknown"]
    for side in ("source", "target"):
        one, other = (getattr(each.tokenizers, side) for each in (ours, back))
        assert one.encode(texts) == other.encode(texts)
        assert one.vocabulary == other.vocabulary


@pytest.mark.parametrize("name", ["plain", "two vocabularies", "untied"])
def test_its_own_library_computes_the_same(library, tmp_path, name):
    # By turns, as in the paper: the dimensions are permuted.
    ours = random_bundle(norm_epsilon=1e-5, **BACK[name])
    export_marianmt(ours, tmp_path / "out")
    theirs = open_marianmt(tmp_path / "out")
    assert compare_logits(ours.model, ours.tokenizers.special, theirs, PAIRS).same
    assert not {"<s>", "</s>"} & {*theirs.translate(["w5 w6 w7"], 2, 9)[0].split()}
    back = read_marianmt(tmp_path / "out")
    torch.testing.assert_close(
        back.model.embedding.weight[:, :10], ours.model.embedding.weight[:, 0::2], rtol=0, atol=0
    )


def test_every_variant_is_said_or_refused_by_name(variants, tmp_path):
    for name, changes in variants.items():
        ours = random_bundle(norm_epsilon=1e-5, **changes)
        if name in SAYABLE:
            export_marianmt(ours, tmp_path / name)
            continue
        with pytest.raises(BadInputError, match="MarianMT cannot express") as refused:
            export_marianmt(ours, tmp_path / name)
        assert any(f"{field} = {value!r}" in str(refused.value) for field, value in changes.items())
        assert not (tmp_path / name).exists()


def test_norms_that_add_less_are_said_and_those_that_add_more_refused(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        export_marianmt(random_bundle(norm_epsilon=1e-6), tmp_path / "less")
    assert "norm_epsilon = 1e-06: MarianMT's norms add 1e-05" in caplog.text
    with pytest.raises(BadInputError, match=r"norm_epsilon = 0\.001"):
        export_marianmt(random_bundle(norm_epsilon=1e-3), tmp_path / "more")


@pytest.mark.parametrize(
    "generation",
    [
        GenerationConfig(beam_size=5, length_penalty_kind="marian", length_penalty=0.7, max_length=80, min_length=2),
        GenerationConfig(beam_size=1, length_penalty_kind="marian", stopping="full_beam", max_length=9),
    ],
)
def test_how_it_writes_goes_along(tmp_path, generation):
    ours = random_bundle(**EXACT)
    export_marianmt(type(ours)(ours.model, ours.tokenizers, generation), tmp_path / "out")
    assert read_marianmt(tmp_path / "out").generation == generation


def test_what_its_search_has_not_is_named_and_no_output_is_longer_than_its_positions(tmp_path, caplog):
    ours = random_bundle(**EXACT)
    with caplog.at_level(logging.WARNING):
        export_marianmt(
            type(ours)(ours.model, ours.tokenizers, GenerationConfig(coverage_penalty=0.2, max_length=2000)),
            tmp_path / "out",
        )
    assert "coverage_penalty = 0.2 is left out: transformers' search has no such setting" in caplog.text
    assert read_marianmt(tmp_path / "out").generation.max_length == 1024 - 2


def test_an_export_is_proven_and_its_tokenizer_comes_along(library, trained_run, tmp_path):
    model, out = tmp_path / "post-norm", tmp_path / "there"
    trained = load_bundle(trained_run)
    changes = {"norm": "post", "final_norm": False, "norm_epsilon": 1e-5}
    config = trained.config.model_copy(update=changes)
    save_bundle(Bundle(build(config).eval(), trained.tokenizers, trained.generation), model)
    assert main._run(["export", str(model), "--to", "marianmt", "--out", str(out)]) == 0
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["reference"] == "transformers"
    assert certificate["equal"] + len(certificate["differing"]) == certificate["lines"]
    texts = ["bamo dulu kari", "wemo"]
    found = library.AutoTokenizer.from_pretrained(out)(texts)["input_ids"]
    assert found == [[*ids, 2] for ids in trained.tokenizers.source.encode(texts)]
    # And back by the verb.
    assert main._run(["import", str(out), "--out", str(tmp_path / "back"), "--no-prove"]) == 0
    assert load_bundle(tmp_path / "back").tokenizers.source.encode(texts) == [ids[:-1] for ids in found]
