"""A certificate says that two computations are the same where they are, and where they part where they are not."""

import copy
import hashlib
import importlib.metadata
import json
from dataclasses import replace

import pytest
import torch

import transduce
from tests.random_bundle import random_bundle, words
from tests.sparing import one_each
from transduce.bundle import Bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig, RecurrentConfig, TransduceError
from transduce.inference import Translator
from transduce.interop import certify, ctranslate2
from transduce.interop.layer_walk import layer_outputs
from transduce.interop.logits import as_tokens, known_logits
from transduce.interop.rounding import Numbers, count_terms, tolerance
from transduce.models import build
from transduce.text import TokenizerPair
from transduce.workflows.export import export_model

pytest_plugins = ["tiny_run"]

LINES = ["w4 w17 w30 w5", "w29 w4", "w11 w12 w13 w14 w15 w16", "w7 w7 w7"]


class Twin:
    """Our own model as another library's: what it computes and shows can be changed."""

    name, versions, weights = "Twin", {"twin": "3.1"}, ()

    def __init__(self, bundle, *, shows=True, kind=torch.float32, text=str, change=lambda logits: logits):
        self.bundle = replace(bundle, model=copy.deepcopy(bundle.model).to(kind))
        self.shows, self.text, self.change = shows, text, change

    def pair(self, *pair):
        return as_tokens(pair, self.bundle.tokenizers.special)

    def logits(self, *pair):
        return self.change(known_logits(self.bundle.model, *self.pair(*pair)).clone())

    def translate(self, lines, beam, longest):
        generation = GenerationConfig(beam_size=beam, length_penalty_kind="none", max_length=longest - 1)
        translator = Translator(replace(self.bundle, generation=generation), "float32")
        return [self.text(each.text) for each in translator.translate(list(lines), first_number=None)]

    def layers(self, *pair):
        return layer_outputs(self.bundle.model, *self.pair(*pair)) if self.shows else {}


def spoil(twin, name, factor=1.01):
    """One number of one parameter is wrong."""
    with torch.no_grad():
        parameter = dict(twin.bundle.model.named_parameters())[name]
        parameter.view(-1)[7] = parameter.view(-1)[7] * factor + 0.01
    return twin


@pytest.fixture(scope="module")
def ours():
    return random_bundle(output_bias=True)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


class TestRoundingThatGrows:
    """Of a pair whose numbers are ill-conditioned, our own distance from float64 says what rounding does."""

    @pytest.fixture(autouse=True)
    def _little_is_allowed(self, monkeypatch):
        monkeypatch.setattr("transduce.interop.logits.tolerance", lambda *_: 1e-9)

    def test_is_no_difference(self, ours):
        exact = copy.deepcopy(ours.model).double()
        twin = Twin(ours)
        twin.logits = lambda *pair: known_logits(exact, *twin.pair(*pair)).float()
        certificate = certify(ours, twin, LINES, weights=[])
        assert 1e-9 < certificate.largest_difference <= certificate.tolerance < 1e-4

    def test_is_one_where_it_grows_many_times_as_far(self, ours):
        with pytest.raises(TransduceError, match=r"Twin computes otherwise.*--no-prove writes it all the same"):
            certify(ours, Twin(ours, change=lambda logits: logits + 1e-4), LINES, weights=[])


class TestWhatIsTheSame:
    def test_says_what_was_compared(self, ours, file):
        certificate = certify(ours, Twin(ours), LINES, weights=[file])
        assert (certificate.reference, certificate.precision, certificate.largest_difference) == ("Twin", "float32", 0)
        assert 0 < certificate.tolerance < 1e-4
        assert (certificate.lines, certificate.equal, certificate.differing) == (4, 4, ())
        assert certificate.pairs == 4 + 4  # of the lines, and random ones
        assert certificate.versions.keys() == {"transduce", "torch", "twin"}
        assert certificate.sha256 == {
            "transduce": {"model.safetensors": hashlib.sha256(b"weights").hexdigest()},
            "Twin": {},
        }

    def test_needs_no_installed_package(self, ours, file, monkeypatch):
        """From its sources, as on a machine that has them on its path alone, there is no metadata to ask."""

        def nothing_known(name):
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata.Distribution, "from_name", nothing_known)
        certificate = certify(ours, Twin(ours), LINES[:1], weights=[file])
        assert certificate.versions["transduce"] == transduce.__version__

    def test_a_speed_is_taken_of_enough_translations(self, ours, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setattr("transduce.interop.certificate._LONG_ENOUGH", 1e9)
        twin, translated = Twin(ours), []
        translate = twin.translate
        twin.translate = lambda lines, *rest: translated.append(lines) or translate(lines, *rest)
        certify(ours, twin, LINES, weights=[])
        assert translated == [LINES[:1], *[LINES] * 5]

    def test_is_written_as_it_is(self, ours, tmp_path):
        certificate = certify(ours, Twin(ours), LINES, weights=[])
        certificate.write(tmp_path)
        read = json.loads((tmp_path / "certificate.json").read_text())
        assert read["tolerance"] == certificate.tolerance
        assert read["lines_per_second"].keys() == {"transduce", "Twin"}
        first, second, *_ = certificate.describe()
        assert "differ by at most 0 from Twin's in float32" in first
        assert second == "translations: 4 of 4 equal, beam 4"

    def test_lines_that_differ_are_named_with_the_reason(self, ours):
        """Outputs at the length limit may be cut otherwise; of many, the first ten are named."""
        lines = [f"w{number}" for number in range(4, 25)]
        certificate = certify(ours, Twin(ours, text=lambda text: text.rsplit(" ", 1)[0]), lines, weights=[])
        differing = [each for each in certificate.differing if each.reason == "at the length limit"]
        assert differing
        assert certificate.equal + len(certificate.differing) == 21
        said = replace(certificate, differing=(differing[0],) * 13).describe()[2:-1]
        assert said == [f"  line {differing[0].line}: at the length limit"] * 10 + ["  and 3 more, in certificate.json"]

    def test_a_line_that_differs_has_its_number_of_all_lines(self, ours):
        """Blank ones, and those that the model cannot read, are not compared."""
        bundle = random_bundle(positions="learned", max_positions=5)
        lines = ["", "w4 w5", LINES[2], " ", *(f"w{number} w7" for number in range(10, 21)), "w9"]
        twin = Twin(bundle)
        translate = twin.translate
        twin.translate = lambda lines, *rest: [
            each.rsplit(" ", 1)[0] if line == "w9" else each
            for line, each in zip(lines, translate(lines, *rest), strict=True)
        ]
        assert [each.line for each in certify(bundle, twin, lines, weights=[]).differing] == [16]

    def test_an_architecture_without_layers_to_show(self):
        config = RecurrentConfig(vocab_size=31, embedding_size=5, hidden_size=7, readout_size=5, attention_size=11)
        torch.manual_seed(3)
        bundle = Bundle(build(config).eval(), TokenizerPair.of(words(31)), GenerationConfig())
        assert certify(bundle, Twin(bundle, shows=False), LINES, weights=[]).equal == 4
        wrong = spoil(Twin(bundle, shows=False), "embedding.weight", 300)
        with pytest.raises(TransduceError, match="of Transformers alone"):
            certify(bundle, wrong, LINES, weights=[])

    def test_a_model_of_few_positions(self):
        """Sentences and random pairs that it cannot read are left out, or shorter."""
        bundle = random_bundle(positions="learned", max_positions=5)
        assert certify(bundle, Twin(bundle), LINES, weights=[]).lines == 3
        with pytest.raises(BadInputError, match=r"none of 1 sentences .* \(fewer than 5 symbols\)"):
            certify(bundle, Twin(bundle), [LINES[2], " "][:1], weights=[])


class TestWhereTheyPart:
    PLACES = {  # noqa: RUF012
        "decoder.1.cross_attention.value.weight": "decoder layer 2 ",
        "decoder.2.feed_forward.inner.bias": "decoder layer 3 ",
        "encoder.1.self_attention_residual.norm.weight": "encoder layer 2 ",
        "output_bias": "behind the last one",
    }

    @pytest.mark.parametrize(("parameter", "norm"), [*one_each(PLACES, ("post", "pre"))])
    def test_the_layer_is_named(self, norm, parameter):
        bundle = random_bundle(norm=norm, output_bias=True)
        with pytest.raises(TransduceError, match=self.PLACES[parameter]):
            certify(bundle, spoil(Twin(bundle), parameter), LINES, weights=[])

    def test_behind_pre_norm_stacks(self):
        bundle = random_bundle(norm="pre")
        with pytest.raises(TransduceError, match="decoder output "):
            certify(bundle, spoil(Twin(bundle), "decoder_norm.weight"), LINES, weights=[])

    def test_in_what_layers_read(self):
        bundle = random_bundle(source_vocab_size=37, positions="learned", max_positions=40)
        with pytest.raises(TransduceError, match="encoder input "):
            certify(bundle, spoil(Twin(bundle), "encoder_positions.table.weight"), LINES, weights=[])

    def test_another_activation_is_beyond_rounding(self):
        """GELU and its approximation are apart by 0.0005 at most."""
        bundle = random_bundle(activation="gelu")
        other = random_bundle(activation="gelu_tanh")
        with pytest.raises(TransduceError, match="they part at encoder layer 1 "):
            certify(bundle, Twin(other), LINES, weights=[])

    def test_nobody_shows_layers(self, ours):
        wrong = spoil(Twin(ours, shows=False), "decoder.1.feed_forward.inner.bias")
        with pytest.raises(TransduceError, match="Twin shows no layers"):
            certify(ours, wrong, LINES, weights=[])


class TestWhatIsADifference:
    def test_float64_finds_what_float32_hides(self, ours):
        def twin(kind):
            found = Twin(ours, kind=kind)
            with torch.no_grad():
                found.bundle.model.decoder[0].feed_forward.inner.bias[3] += 1e-7
            return found

        assert certify(ours, twin(torch.float32), LINES, weights=[]).precision == "float32"
        with pytest.raises(TransduceError, match="decoder layer 1 "):
            certify(ours, twin(torch.float64), LINES, weights=[])

    def test_nan_is_one_but_for_a_symbol_that_is_not_there(self, ours):
        def lacking(logits):
            logits[:, 1] = torch.nan
            return logits

        def damaged(logits):
            logits[0, 9] = torch.nan
            return logits

        whole = certify(ours, Twin(ours), LINES, weights=[]).numbers
        assert certify(ours, Twin(ours, change=lacking), LINES, weights=[]).numbers == whole * 30 / 31
        with pytest.raises(TransduceError, match="logits differ by up to inf"):
            certify(ours, Twin(ours, change=damaged), LINES, weights=[])
        with pytest.raises(TransduceError, match="logits differ by up to inf"):
            certify(ours, Twin(ours, change=lambda logits: logits * torch.nan), LINES, weights=[])

    def test_what_is_forbidden_is_the_same_however_it_is(self, ours):
        forbidding = copy.deepcopy(ours.model)
        with torch.no_grad():
            forbidding.output_bias[1] = -1e8

        def forbid(logits):
            logits[:, 1] = -torch.inf
            return logits

        bundle = replace(ours, model=forbidding)
        assert certify(bundle, Twin(ours, change=forbid), LINES, weights=[]).tolerance < 1e-4

    def test_another_vocabulary(self, ours):
        with pytest.raises(TransduceError, match="logits differ by up to inf"):
            certify(ours, Twin(ours, change=lambda logits: logits[:, 1:]), LINES, weights=[])

    def test_other_text_from_the_same_logits(self, ours):
        with pytest.raises(TransduceError, match="lines otherwise, though it computes the same"):
            certify(ours, Twin(ours, text=lambda text: "w9 " + text.replace("w", "x")), LINES, weights=[])


class TestTolerance:
    def test_by_hand(self):
        numbers = Numbers.of(torch.tensor([3.0, -3.0])) + Numbers.of(torch.tensor([3.0]))
        assert tolerance(numbers, 16, torch.float32) == 8 * 2**-24 * 4 * 3
        assert tolerance(numbers, 16, torch.float64) == 8 * 2**-53 * 4 * 3

    def test_terms_are_the_inputs_of_every_matrix(self):
        layer = random_bundle().model.decoder[0]
        assert count_terms([layer]) == 2 * 4 * 20 + 20 + 28


@pytest.fixture
def installed():
    pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")


@pytest.mark.usefixtures("installed")
class TestExport:
    def run(self, capsys, *arguments):
        capsys.readouterr()
        status = main._run(["export", *map(str, arguments), "--to", "ctranslate2"])
        return status, capsys.readouterr().err

    def test_comes_with_one(self, trained_run, tmp_path, capsys):
        (tmp_path / "lines").write_text("bamo dulu kari\nwemo\nluso gozu fepi wemo bamo\n\nkari kari\n")
        out = tmp_path / "out"
        status, shown = self.run(capsys, trained_run, "--out", out, "--sentences", tmp_path / "lines")
        assert status == 0
        assert "translations: 4 of 4 equal, beam 4" in shown
        found = json.loads((out / "certificate.json").read_text())
        assert 0 < found["largest_difference"] <= found["tolerance"] < 1e-3
        for side, path in (("transduce", trained_run / "best/model.safetensors"), ("CTranslate2", out / "model.bin")):
            assert found["sha256"][side] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
        assert "ctranslate2" in found["versions"]

    def test_without_the_sentences_nothing_is_written(self, trained_run, tmp_path, capsys):
        status, shown = self.run(capsys, trained_run, "--out", tmp_path / "out", "--sentences", tmp_path / "lines")
        assert (status, shown.count("\n"), "no such file" in shown) == (2, 1, True)
        (tmp_path / "lines").write_text("\n \n")
        status, shown = self.run(capsys, trained_run, "--out", tmp_path / "out", "--sentences", tmp_path / "lines")
        assert (status, shown.count("\n"), "none of 2 sentences to compare the models on" in shown) == (2, 1, True)
        assert [path.name for path in tmp_path.iterdir()] == ["lines"]

    def test_may_be_left_out(self, trained_run, tmp_path, capsys):
        assert self.run(capsys, trained_run, "--out", tmp_path / "out", "--no-prove")[0] == 0
        assert not (tmp_path / "out" / "certificate.json").exists()

    def test_lines_to_compare_on_are_refused_where_nothing_is_compared(self, trained_run, tmp_path, capsys):
        named = "--sentences: lines to compare both on, and --no-prove compares nothing"
        options = ["--out", tmp_path / "out", "--sentences", tmp_path / "lines", "--no-prove"]
        status, shown = self.run(capsys, trained_run, *options)
        assert (status, named in shown) == (2, True)
        assert main._run(["import", str(trained_run), *map(str, options)]) == 2
        assert named in capsys.readouterr().err

    @pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
    def test_left_out_it_opens_no_other_library(self, trained_run, tmp_path, monkeypatch, to):
        def refuse(*_):
            raise AssertionError

        for name in ("open_ctranslate2", "open_onnx"):
            monkeypatch.setattr(f"transduce.workflows.export.{name}", refuse)
        assert export_model(trained_run, to, tmp_path / "out", prove=False) is None
        assert [*(tmp_path / "out").iterdir()]

    @pytest.mark.parametrize(("stack", "number"), [("encoder", 1), ("decoder", 2)])
    def test_a_wrong_weight_is_found_and_nothing_written(self, tmp_path, capsys, monkeypatch, stack, number):
        bundle = random_bundle()
        save_bundle(bundle, tmp_path / "model")
        rightly = ctranslate2._fill_layer

        def wrongly(twin, layer):
            rightly(twin, layer)
            mine = getattr(bundle.model, stack)[number]
            if torch.equal(layer.feed_forward.inner.weight, mine.feed_forward.inner.weight):
                twin.ffn.linear_0.weight = twin.ffn.linear_0.weight * 1.1

        monkeypatch.setattr(ctranslate2, "_fill_layer", wrongly)
        (tmp_path / "lines").write_text("w4 w5\nw6\n")
        status, shown = self.run(
            capsys, tmp_path / "model", "--out", tmp_path / "out", "--sentences", tmp_path / "lines"
        )
        assert (status, shown.count("error: ")) == (1, 1)
        assert "CTranslate2 computes otherwise: logits differ by up to " in shown
        assert f"they part at {stack} layer {number + 1} (" in shown
        assert {path.name for path in tmp_path.iterdir()} == {"model", "lines"}
