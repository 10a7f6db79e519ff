"""``transduce import`` of every format but MarianMT: told from the files, read, or refused with nothing written."""

import json
import os

import pytest
import torch

from tests.interop import (
    test_eole,
    test_interop_fairseq,
    test_joeynmt,
    test_marian_npz,
    test_opennmt,
    test_sockeye,
    test_torch_nn,
)
from tests.plain_transformer import TARGETS, random_weights
from tests.random_bundle import random_bundle
from transduce.bundle import load_bundle
from transduce.cli import main
from transduce.config import BadInputError
from transduce.interop import export_ctranslate2, recognise
from transduce.interop.recognise import FORMATS as FORMATS_IN


def fairseq(folder):
    return test_interop_fairseq.write(folder, test_interop_fairseq.state_dict(random_weights()))


def marian(folder):
    path = test_marian_npz.write(folder, test_marian_npz.arrays(random_weights(output_bias=True)))
    (folder / "model.npz.decoder.yml").write_text("vocabs: [source.yml, target.yml]\n")
    return path


def ctranslate2(folder):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")

    export_ctranslate2(random_bundle(), folder / "out")
    return folder / "out"


def opennmt(folder):
    return test_opennmt.write(folder, random_weights(output_bias=True))


def joeynmt(folder):
    return test_joeynmt.write(folder, random_weights())


def eole(folder):
    return test_eole.write(folder, random_weights(output_bias=True))


def sockeye(folder):
    return test_sockeye.write(folder, test_sockeye.model_weights())


def torch_nn(folder):
    return test_torch_nn.write(folder, test_torch_nn.make().state_dict())


FORMATS = {
    "fairseq": fairseq,
    "marian": marian,
    "ctranslate2": ctranslate2,
    "opennmt": opennmt,
    "joeynmt": joeynmt,
    "eole": eole,
    "sockeye": sockeye,
    "torch": torch_nn,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_comes_in_by_its_files_and_is_proven(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr("transduce.interop.marian_reference.has_marian", lambda: False)
    (tmp_path / "theirs").mkdir()
    path = FORMATS[name](tmp_path / "theirs")
    assert recognise(path) == name
    (tmp_path / "text").write_text("a b\nYes.\nNo, no.\n")
    line = ["import", str(path), "--out", str(tmp_path / "ours"), "--sentences", str(tmp_path / "text")]
    assert main._run(line) == 0
    bundle = load_bundle(tmp_path / "ours")
    assert bundle.config.d_model == 20
    shown = capsys.readouterr().err
    if name == "marian":
        assert "there is no certificate: pymarian is not installed" in shown
        return
    certificate = json.loads((tmp_path / "ours" / "certificate.json").read_text())
    assert certificate["reference"] in shown
    assert certificate["largest_difference"] <= certificate["tolerance"] < 1e-3
    # Positions of the random pairs alone; some formats have no symbol of their own for each of ours.
    assert certificate["numbers"] > (5 + 2 + 17 + 23) * (bundle.config.vocab_size - 2)
    assert certificate["equal"] + len(certificate["differing"]) == certificate["lines"] == 3
    assert main._run(["import", str(path), "--out", str(tmp_path / "again"), "--no-prove"]) == 0
    assert not (tmp_path / "again" / "certificate.json").exists()


class Hostile:
    def __init__(self, path):
        self.call = os.system, (f"touch {path}",)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("fairseq", "checkpoint_best.pt"),
        ("opennmt", "model.pt"),
        ("joeynmt", "700.ckpt"),
        ("sockeye", "params.best"),
        ("torch", "model.pt"),
    ],
)
def test_a_pickle_that_would_run_code_writes_nothing(tmp_path, capsys, name, file):
    (tmp_path / "theirs").mkdir()
    path = FORMATS[name](tmp_path / "theirs")
    torch.save({"model": Hostile(tmp_path / "run")}, tmp_path / "theirs" / file)
    assert main._run(["import", str(path), "--out", str(tmp_path / "ours")]) == 2
    error = capsys.readouterr().err
    assert f": asks for {os.name}.system" in error
    assert len(error.strip().splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["theirs"]


def test_words_are_cut_by_the_file_that_is_named(tmp_path):
    (tmp_path / "theirs").mkdir()
    symbols = ["<unk>", "<blank>", "<s>", "</s>", "lo@@", "w"]
    symbols += [f"w{number}" for number in range(len(symbols), TARGETS)]
    weights = random_weights(sources=TARGETS, output_bias=True, shared=True, tied=True)
    path = test_opennmt.write(tmp_path / "theirs", weights, vocab={"src": symbols, "tgt": symbols})
    (tmp_path / "merges").write_text("#version: 0.2\nl o\n")
    line = ["import", str(path), "--out", str(tmp_path / "ours"), "--from", "opennmt", "--no-prove"]
    assert main._run(line) == 2
    assert main._run([*line, "--codes", str(tmp_path / "merges")]) == 0
    tokenizer = load_bundle(tmp_path / "ours").tokenizers.source
    assert tokenizer.tokens(tokenizer.encode(["low"])[0]) == ["lo", "w</w>"]


def test_what_is_no_model(tmp_path):
    (tmp_path / "model.bin.txt").write_text("none")
    for path, message in (
        (tmp_path, rf"no model of a format.*\({', '.join(FORMATS_IN)}\)"),
        (tmp_path / "model.bin.txt", "no model of a format"),
        (tmp_path / "missing.pt", "no such model"),
    ):
        with pytest.raises(BadInputError, match=message):
            recognise(path)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("best/config.json", "which every verb takes as it is"),
        ("checkpoints/step-3/state.json", "transduce average .* makes a model of the newest one"),
        ("model/best/config.json", "there are some in it: .*model"),
        ("model.npz", r"transduce import .*model\.npz --out MODEL"),
        ("encoder_model.onnx", "which no verb reads back: give the model that it was exported from"),
    ],
)
def test_a_folder_of_another_kind_is_told_what_it_is(tmp_path, file, message):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(BadInputError, match=message):
        recognise(tmp_path)
