"""Marian itself beside ours: models that it has trained, and ours that it reads, get the same scores and outputs."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.interop import test_marian_npz
from tests.interop.marianmt import train
from tests.plain_transformer import TARGETS, random_weights
from tests.random_bundle import random_bundle
from tests.two_spm import sentences
from transduce.bundle import save_bundle
from transduce.cli import main
from transduce.config import TransduceError
from transduce.interop import export_marian, open_marian, read_marian
from transduce.interop.logits import compare
from transduce.interop.marian_options import CONFIG
from transduce.interop.marian_runtime import has_marian, run_marian
from transduce.interop.npz import read_npz
from transduce.models import build

pytestmark = pytest.mark.skipif(not has_marian(), reason="pymarian is missing: pip install 'transduce[marian]'")

TRANSFORMER = "--type transformer --dim-emb 20 --transformer-heads 5 --transformer-dim-ffn 28"
DEPTHS = "--enc-depth 2 --dec-depth 3"
STEPS = "--after 15u --learn-rate 0.01 --seed 7 --mini-batch 24 --maxi-batch 10 --cpu-threads 1"
ALL = "--tied-embeddings-all"
PRE = "--transformer-preprocess n --transformer-postprocess da"
VARIANTS = {
    "swish, one matrix": ALL,
    "ReLU, matrices of their own": "--transformer-ffn-activation relu",
    "GELU": f"{ALL} --transformer-ffn-activation gelu",
    "norms of embeddings": f"{ALL} --transformer-postprocess-emb nd",
    "pre-norm": f"--tied-embeddings {PRE} --transformer-postprocess-top n",
    "pre-norm without a last one": f"--tied-embeddings-src {PRE}",
    "positions trained, as it says": f"{ALL} --transformer-train-position-embeddings",
    "no positions": f"{ALL} --transformer-disable-position-embeddings",
    "no bias of the logits": f"{ALL} --output-omit-bias",
    "no map of heads": f"{ALL} --transformer-no-projection",
    "layers that are one": f"{ALL} --transformer-tied-layers 1 2 1",
    "narrow networks": f"{ALL} --transformer-decoder-dim-ffn 19",
}
RECURRENT = [
    "--type amun",
    f"--type s2s {ALL} --enc-depth 3 --enc-type alternating --dec-depth 2",
    "--type s2s --enc-depth 2 --enc-type bi-unidirectional --tied-embeddings",
    "--type nematus --enc-cell gru-nematus --dec-cell gru-nematus",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("marian")
    for side in ("source", "target"):
        (folder / side).write_text("\n".join(sentences(side, 400)) + "\n")
    return folder


def learn(corpus, options, kind=f"{TRANSFORMER} {DEPTHS}"):
    """Train a model for some steps; the first one learns the vocabulary too."""
    place = corpus / "".join(each for each in options if each.isalnum())
    if not place.exists():
        place.mkdir()
        files = "--train-sets ../source ../target --vocabs ../vocab.spm ../vocab.spm --model model.npz"
        run_marian(["train", *f"{files} --dim-vocabs 150 150 {kind} {STEPS} {options}".split()], place)
        (place / "vocab.spm").hardlink_to(corpus / "vocab.spm")
    return place / "model.npz"


@pytest.fixture(scope="module")
def trained(corpus):
    return learn(corpus, f"{ALL} --label-smoothing 1e-05")


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines"
    path.write_text("\n".join(sentences("source", 6, seed=3)) + "\n")
    return path


def certificate_of(out):
    return json.loads((out / "certificate.json").read_text())


def change(stored, path, **options):
    """The same model with other arrays and options."""
    import yaml

    values = yaml.safe_load(stored[CONFIG].tobytes().split(b"\0")[0])
    path.parent.mkdir()
    said = np.frombuffer(json.dumps(values | options).encode() + b"\0", np.int8)
    np.savez(path, **{**stored, CONFIG: said})
    return path


@pytest.mark.parametrize("options", RECURRENT)
def test_recurrent_models_too(corpus, tmp_path, lines, options):
    model = learn(corpus, options, kind="--dim-emb 12 --dim-rnn 20")
    assert main._run(["import", str(model), "--out", str(tmp_path / "ours"), "--sentences", str(lines)]) == 0
    certificate = certificate_of(tmp_path / "ours")
    assert certificate["largest_difference"] < 1.5e-5
    assert certificate["lines"] == 6
    # Of models that have learned little, some outputs have no end but the limit's.
    assert {each["reason"] for each in certificate["differing"]} <= {"at the length limit"}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_it_has_trained_comes_in_proven(corpus, tmp_path, lines, name):
    model = learn(corpus, VARIANTS[name])
    line = ["import", str(model), "--out", str(tmp_path / "ours"), "--sentences", str(lines)]
    assert main._run(line) == 0
    certificate = certificate_of(tmp_path / "ours")
    assert (certificate["reference"], certificate["compared"]) == ("Marian", "log-probabilities")
    assert certificate["largest_difference"] < 1.5e-5  # of which its printing has 0.5e-5
    if name.startswith("pre-norm"):
        assert certificate["untranslated"].startswith("Marian's search reads keys and values")
        assert certificate["lines"] == 0
    else:
        assert (certificate["untranslated"], certificate["lines"]) == (None, 6)
        assert certificate["equal"] >= 5
    assert certificate["versions"]["pymarian"].startswith("1.")


def test_other_sinusoids_and_another_epsilon_would_be_found(trained, tmp_path):
    """What was in doubt is settled by what it computes: sinusoids of the closed range, and 1e-6."""
    stored = read_npz(trained)
    small = {
        name: array * 3e-3 if "_ln_" in name or name.endswith(("_Wo", "_bo", "_W2", "_b2")) else array
        for name, array in stored.items()
    }
    model = change(small, tmp_path / "small" / "model.npz")
    (model.parent / "vocab.spm").hardlink_to(trained.with_name("vocab.spm"))
    ours, theirs = read_marian(model), open_marian(model)
    pairs = [([5, 9, 130, 7], [11, 12, 80]), ([140], [6, 6, 77, 31])]

    def is_same(bundle):
        return compare(bundle.model, bundle.tokenizers.special, theirs, pairs).largest_difference < 1.5e-5

    assert ours.config.norm_epsilon == 1e-6
    assert is_same(ours)
    for changes in ({"sinusoid_range": "open"}, {"norm_epsilon": 1e-5}, {"norm_epsilon": 1e-8}):
        other = build(ours.config.model_copy(update=changes)).eval()
        other.load_state_dict(ours.model.state_dict())
        assert not is_same(replace(ours, model=other)), changes


def test_its_search_for_pre_norm_models_is_not_what_it_scores(corpus):
    """Which is why translations of these are not compared."""
    reference = open_marian(learn(corpus, f"{ALL} {PRE}"))
    assert reference.search_differs
    folder = reference._folder
    (folder / "source").write_text("w20 w31 w77 w5\n")
    files = ["--models", "model.npz", "--vocabs", "source.yml", "target.yml", "--input", "source"]
    limits = ["--word-scores", "--beam-size", "1", "--max-length-factor", "1", "--cpu-threads", "1"]
    words, _, scores = run_marian(["decode", *files, *limits], folder).partition(" ||| WordScores= ")
    numbers = reference._sides.target
    ids = [int(numbers.ours[int(word[1:])]) for word in words.split()]
    (scored,) = reference.log_probabilities([([int(numbers.ours[each]) for each in (20, 31, 77, 5)], ids)])
    searched = torch.tensor([float(each) for each in scores.split()])
    assert len(ids) >= 3
    assert searched[0] == pytest.approx(float(scored[0]), abs=2e-5)
    assert (searched[: len(ids)] - scored[: len(ids)]).abs().max() > 1e-3


class TestExport:
    def test_what_came_from_it_goes_back_proven(self, trained, tmp_path, lines):
        assert main._run(["import", str(trained), "--out", str(tmp_path / "ours"), "--no-prove"]) == 0
        line = ["export", str(tmp_path / "ours"), "--to", "marian", "--out", str(tmp_path / "back")]
        assert main._run([*line, "--sentences", str(lines)]) == 0
        certificate = certificate_of(tmp_path / "back")
        assert certificate["reference"] == "Marian"
        assert certificate["largest_difference"] < 1.5e-5
        assert (certificate["lines"], certificate["equal"]) == (6, 6)
        there, back = (read_npz(path) for path in (trained, tmp_path / "back" / "model.npz"))
        assert there.keys() == back.keys()
        assert all(np.array_equal(array, back[name]) for name, array in there.items() if name != CONFIG)

    @pytest.mark.parametrize("name", test_marian_npz.OURS)
    def test_what_was_made_here_computes_the_same_there(self, tmp_path, name):
        """A learned begin symbol, sinusoids by turns, no biases: Marian says it otherwise."""
        ours = random_bundle(**({"sinusoid_range": "closed"} | test_marian_npz.OURS[name]))
        export_marian(ours, tmp_path)
        pairs = [([5, 9, 20, 3], [7, 30, 11, 6]), ([4], []), ([8] * 13, [30, 29, 4] * 5)]
        theirs = open_marian(tmp_path / "model.npz")
        compared = compare(ours.model, ours.tokenizers.special, theirs, pairs)
        assert compared.count == 5 + 1 + 16
        assert compared.largest_difference < 3e-5

    def test_what_was_trained_here_goes_there_proven(self, tmp_path):
        """And never writes padding, which Marian's search would not forbid."""
        ours = random_bundle(sinusoid_range="closed", dropout=0.0)
        draws = torch.Generator().manual_seed(2)
        rows = [torch.randint(4, 31, (1 + each % 4,), generator=draws).tolist() for each in range(200)]
        train(ours.model.train(), rows, 150)
        ours.model.eval()
        save_bundle(ours, tmp_path / "ours")
        (tmp_path / "lines").write_text("".join(f"w{row[0]} w{row[-1]}\n" for row in rows[:20]))
        line = ["export", str(tmp_path / "ours"), "--to", "marian", "--out", str(tmp_path / "out")]
        assert main._run([*line, "--sentences", str(tmp_path / "lines")]) == 0
        certificate = certificate_of(tmp_path / "out")
        assert certificate["reference"] == "Marian"
        assert certificate["largest_difference"] < 3e-5
        assert (certificate["lines"], certificate["equal"]) == (20, 20)

    def test_learned_positions_it_does_not_run(self, tmp_path, capsys):
        """What is written says so, and nothing else is computed."""
        ours = random_bundle(positions="learned", max_positions=11)
        table = ours.model.decoder_positions.table.weight
        table.data.copy_(ours.model.encoder_positions.table.weight)
        save_bundle(ours, tmp_path / "ours")
        (tmp_path / "lines").write_text("w4 w17 w30\n")
        line = ["export", str(tmp_path / "ours"), "--to", "marian", "--out", str(tmp_path / "out")]
        assert main._run([*line, "--sentences", str(tmp_path / "lines")]) == 0
        assert "not with Marian: its positions are trained, which Marian 1." in capsys.readouterr().err
        with pytest.raises(TransduceError, match="Marian fails: "):
            open_marian(tmp_path / "out" / "model.npz").log_probabilities([([5], [6])])

    def test_a_wrong_weight_is_found_with_its_layer(self, trained, tmp_path, lines, capsys, monkeypatch):
        def wrongly(*arguments, **settings):
            bundle = read_marian(*arguments, **settings)
            bundle.model.decoder[1].cross_attention.value.weight.data[3, 5] += 1
            return bundle

        monkeypatch.setattr("transduce.workflows.import_model.read_marian", wrongly)
        assert main._run(["import", str(trained), "--out", str(tmp_path / "out"), "--sentences", str(lines)]) == 1
        said = capsys.readouterr().err
        assert "Marian computes otherwise: log-probabilities differ by up to " in said
        assert "they part at decoder layer 2 (" in said
        assert not (tmp_path / "out").exists()


class TestFailure:
    def test_what_it_says_is_passed_on(self, tmp_path, capsys):
        """It reads arrays row by row alone."""
        weights = random_weights(sources=TARGETS, output_bias=True, shared=True, tied=True)
        stored = test_marian_npz.arrays(weights, shared=True)
        stored["decoder_l1_ffn_W1"] = np.asfortranarray(stored["decoder_l1_ffn_W1"])
        path = test_marian_npz.write(tmp_path, stored)
        (tmp_path / "model.npz.decoder.yml").write_text("vocabs: [target.yml, target.yml]\n")
        assert main._run(["import", str(path), "--out", str(tmp_path / "out")]) == 1
        said = capsys.readouterr().err
        assert "error: Marian fails: Numpy item 'decoder_l1_ffn_W1' is not stored in row-major order" in said
        assert not (tmp_path / "out").exists()

    def test_a_translator_that_cannot_begin(self, trained):
        reference = open_marian(trained)
        (reference._folder / "model.npz").unlink()
        with pytest.raises(TransduceError, match=r"Marian fails: .*model\.npz"):
            reference.translate(["ba do"], 2, 9)

    def test_its_process_ends_with_the_object(self, trained):
        reference = open_marian(trained)
        reference.translate(["ba do"], 2, 9)
        number = reference._translator._process.pid
        os.kill(number, 0)
        del reference
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
