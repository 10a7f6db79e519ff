"""A model exported to ONNX computes there what it does here, in the layout that other runtimes expect."""

import json
import sys

import numpy as np
import pytest
import tokenizers
import torch

from tests.model_variants import VARIANTS
from tests.random_bundle import SIZES, random_bundle
from transduce.bundle import Bundle
from transduce.cli import main
from transduce.config import BadInputError, TransduceError
from transduce.inference import load
from transduce.interop import export_onnx, onnx, onnx_transformer, open_onnx
from transduce.interop.layer_walk import find_parting, layer_outputs
from transduce.interop.logits import as_tokens, known_logits
from transduce.text import Tokenizer

pytest_plugins = ["tiny_run"]

# The variants of a small model, by name, that ONNX graphs are not written for; all others are.
REFUSED = [
    "relative",
    "additive",
    "additive relative",
    "relative attention_window",
    "parameter attention",
    "average",
    "plain average",
    "mixture of experts",
    "switch",
    "no source end",
]
MORE = {
    "two vocabularies": {"source_vocab_size": 37},
    "multiplicative with bias": {"attention_bias": True, "compatibility": "multiplicative", "d_k": 3},
}
# At most 7 positions are learned by some of them.
PAIRS = [([4, 17, 30, 5], [6, 19]), ([11, 12, 13, 14, 15, 16], [28, 5, 4, 4, 21, 9])]


@pytest.fixture(scope="module")
def runtime():
    pytest.importorskip("onnx", reason="onnx is missing: pip install 'transduce[interop]'")
    return pytest.importorskip("onnxruntime", reason="onnxruntime is missing: pip install 'transduce[interop]'")


def sessions(runtime, folder):
    return {path.stem: runtime.InferenceSession(str(path)) for path in folder.glob("*.onnx")}


def given(session, inputs):
    """All outputs of a session, of whatever it takes of the inputs."""
    taken = {each.name: inputs[each.name] for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, taken), strict=True))


def past(found):
    return {name.replace("present", "past_key_values"): array for name, array in found.items() if "present" in name}


@pytest.mark.parametrize("name", [*(name for name in VARIANTS if name not in REFUSED), *MORE])
def test_every_symbol_has_the_same_logit(runtime, tmp_path, name):
    ours = random_bundle(**(VARIANTS | MORE)[name])
    export_onnx(ours, tmp_path)
    reference = open_onnx(tmp_path, ours.tokenizers)
    for pair in PAIRS:
        tokens = as_tokens(pair, ours.tokenizers.special)
        theirs = reference.logits(*pair)
        assert torch.allclose(theirs, known_logits(ours.model, *tokens), atol=2e-5)
        layers = layer_outputs(ours.model, *tokens)
        assert reference.layers(*pair).keys() == layers.keys()
        assert find_parting(ours.model, layers, reference.layers(*pair)) is None


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_is_not_written_for_is_refused_by_name(tmp_path, name):
    with pytest.raises(BadInputError, match="ONNX graphs are not written for") as refused:
        export_onnx(random_bundle(**VARIANTS[name]), tmp_path)
    assert any(f"{field} = {value!r}" in str(refused.value) for field, value in VARIANTS[name].items())
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def small(runtime, tmp_path_factory):
    """A random model, exported, and its sessions by name."""
    folder, bundle = tmp_path_factory.mktemp("onnx"), random_bundle(norm="pre", d_k=3, d_v=3)
    export_onnx(bundle, folder)
    return bundle, folder, sessions(runtime, folder)


def batch():
    """Two sources, one of them padded, and two targets of one length."""
    return {
        "input_ids": np.array([[4, 17, 30, 5, 2], [29, 4, 2, 0, 0]]),
        "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    }, np.array([[1, 6, 19, 8], [1, 28, 5, 4]])


class TestLayout:
    """As ``optimum`` writes a MarianMT model, for its ``ORTModelForSeq2SeqLM`` and for transformers.js."""

    def test_names(self, small):
        _, folder, found = small
        names = {
            name: ([i.name for i in s.get_inputs()], [o.name for o in s.get_outputs()]) for name, s in found.items()
        }
        layers, parts = range(SIZES["decoder_layers"]), ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
        kept = [f"past_key_values.{n}.{part}" for n in layers for part in parts]
        given_back = [f"present.{n}.{part}" for n in layers for part in parts]
        reading = ["encoder_attention_mask", "input_ids"]
        assert names == {
            "encoder_model": (["input_ids", "attention_mask"], ["last_hidden_state"]),
            "decoder_model": ([*reading, "encoder_hidden_states"], ["logits", *given_back]),
            "decoder_with_past_model": ([*reading, *kept], ["logits", *(n for n in given_back if "decoder" in n)]),
            "decoder_model_merged": (
                [*reading, "encoder_hidden_states", *kept, "use_cache_branch"],
                ["logits", *given_back],
            ),
        }
        assert {path.name for path in folder.iterdir() if path.suffix == ".json"} == {
            *("config.json", "generation_config.json"),
            *("tokenizer.json", "tokenizer_config.json"),
        }

    def test_types_and_shapes(self, small):
        merged = {each.name: each for each in small[2]["decoder_model_merged"].get_inputs()}
        assert (merged["input_ids"].type, merged["use_cache_branch"].type) == ("tensor(int64)", "tensor(bool)")
        assert merged["past_key_values.0.decoder.key"].shape[0::2] == ["batch_size", "past_decoder_sequence_length"]
        assert merged["past_key_values.0.decoder.key"].shape[1::2] == [5, 3]  # heads and their width

    def test_files_are_valid(self, small):
        import onnx as library

        for path in small[1].glob("*.onnx"):
            library.checker.check_model(str(path), full_check=True)

    def test_a_matrix_that_embeds_and_scores_is_stored_once(self, small):
        import onnx as library

        bundle, folder, _ = small
        shape = sorted(bundle.model.embedding.weight.shape)
        for path in folder.glob("*.onnx"):
            stored = [each for each in library.load(path).graph.initializer if sorted(each.dims) == shape]
            assert len(stored) == 1

    def test_settings(self, small):
        config = json.loads((small[1] / "config.json").read_text())
        assert (config["model_type"], config["decoder_start_token_id"], config["eos_token_id"]) == ("marian", 1, 2)
        assert (config["encoder_layers"], config["decoder_layers"], config["decoder_attention_heads"]) == (2, 3, 5)
        generation = json.loads((small[1] / "generation_config.json").read_text())
        assert (generation["num_beams"], generation["bad_words_ids"]) == (4, [[0], [1], [3]])


class TestGraphs:
    def test_padding_changes_nothing(self, small):
        bundle, _, found = small
        source, target = batch()
        memory = given(found["encoder_model"], source)["last_hidden_state"]
        inputs = {"encoder_hidden_states": memory, "encoder_attention_mask": source["attention_mask"]}
        logits = given(found["decoder_model"], {**inputs, "input_ids": target})["logits"]
        for row, length in enumerate((4, 2)):
            pair = source["input_ids"][row, :length].tolist(), target[row, 1:].tolist()
            alone = known_logits(bundle.model, *as_tokens(pair, bundle.tokenizers.special))
            assert np.allclose(logits[row], alone, atol=2e-5)

    @pytest.mark.parametrize("first", [1, 2])
    def test_going_on_is_as_beginning_anew(self, small, first):
        """With one symbol read or with two, the others behind it; by the merged decoder too."""
        _, _, found = small
        source, target = batch()
        memory = given(found["encoder_model"], source)["last_hidden_state"]
        inputs = {"encoder_hidden_states": memory, "encoder_attention_mask": source["attention_mask"]}
        whole = given(found["decoder_model"], {**inputs, "input_ids": target})
        begun = given(found["decoder_model"], {**inputs, "input_ids": target[:, :first]})
        further = {**inputs, **past(begun), "input_ids": target[:, first:]}
        after = given(found["decoder_with_past_model"], further)
        assert np.allclose(after["logits"], whole["logits"][:, first:], atol=2e-6)
        assert np.allclose(after["present.2.decoder.value"], whole["present.2.decoder.value"], atol=2e-6)
        merged = given(found["decoder_model_merged"], {**further, "use_cache_branch": np.array([True])})
        assert np.array_equal(merged["logits"], after["logits"])
        assert np.array_equal(merged["present.1.encoder.key"], begun["present.1.encoder.key"])
        nothing = {name: array[:, :, :0] for name, array in past(begun).items()}
        merged = given(
            found["decoder_model_merged"],
            {**inputs, **nothing, "input_ids": target, "use_cache_branch": np.array([False])},
        )
        assert np.array_equal(merged["logits"], whole["logits"])


@pytest.fixture(scope="module")
def exported(runtime, trained_run, tmp_path_factory):
    """The trained model as the verb exports it."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "lines").write_text("bamo dulu kari\nluso gozu fepi wemo bamo\nkari kari\n")
    out = folder / "out"
    line = ["export", str(trained_run), "--to", "onnx", "--out", str(out), "--sentences", str(folder / "lines")]
    assert main._run(line) == 0
    return out


class TestVerb:
    def test_greedy_by_hand(self, runtime, exported, trained_run):
        """Text to text from what is in the folder alone, and it is our translation."""
        found, tokenizer = sessions(runtime, exported), tokenizers.Tokenizer.from_file(str(exported / "tokenizer.json"))
        config = json.loads((exported / "config.json").read_text())
        text = "gozu luso gozu kari wemo"
        ids = np.array([tokenizer.encode(text).ids])
        assert ids[0, -1] == config["eos_token_id"]
        memory = given(found["encoder_model"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        inputs = {
            "encoder_hidden_states": memory["last_hidden_state"],
            "encoder_attention_mask": np.ones_like(ids),
            "input_ids": np.array([[config["decoder_start_token_id"]]]),
        }
        step, written = given(found["decoder_model"], inputs), []
        kept = past(step)
        while (newest := int(step["logits"][0, -1].argmax())) != config["eos_token_id"] and len(written) < 20:
            written.append(newest)
            step = given(found["decoder_with_past_model"], {**inputs, **kept, "input_ids": np.array([[newest]])})
            kept |= past(step)
        assert tokenizer.decode(written) == load(trained_run, "float32").translate(text, 1).text
        assert len(written) > 3

    def test_the_certificate(self, exported):
        found = json.loads((exported / "certificate.json").read_text())
        assert (found["reference"], found["lines"], found["equal"]) == ("ONNX Runtime", 3, 3)
        assert 0 < found["largest_difference"] <= found["tolerance"] < 1e-3
        assert found["versions"].keys() >= {"onnx", "onnxruntime"}
        assert len(found["sha256"]["ONNX Runtime"]) == 4

    def test_a_wrong_weight_is_found_and_nothing_written(self, runtime, trained_run, tmp_path, capsys, monkeypatch):
        rightly = onnx_transformer._transform

        def wrongly(graph, layer, x):
            found = rightly(graph, layer, x)
            if not hasattr(layer, "cross_attention"):
                return found
            return graph.apply("Add", found, graph.apply("Mul", x, graph.number(0.01)))

        monkeypatch.setattr(onnx_transformer, "_transform", wrongly)
        assert main._run(["export", str(trained_run), "--to", "onnx", "--out", str(tmp_path / "out")]) == 1
        assert "they part at decoder layer 1 (apart by " in capsys.readouterr().err
        assert not any(tmp_path.iterdir())


class TestRefusals:
    def test_another_architecture(self, tmp_path):
        bundle = random_bundle()
        other = Bundle(_other(), bundle.tokenizers, bundle.generation)
        with pytest.raises(BadInputError, match="architecture 'recurrent': only our own engine"):
            export_onnx(other, tmp_path)

    def test_too_large_for_a_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(onnx, "_MOST_BYTES", 1000)
        with pytest.raises(BadInputError, match=r"holds 2 GiB at most, and this model's weights .* bytes"):
            export_onnx(random_bundle(), tmp_path)

    def test_a_missing_library_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(TransduceError, match=r"pip install 'transduce\[interop\]'"):
            export_onnx(random_bundle(), tmp_path)


def test_two_tokenizers_have_a_file_each_and_the_sources_ends_texts(runtime, tmp_path):
    export_onnx(random_bundle(source_vocab_size=37), tmp_path)
    source, target = (Tokenizer.load(tmp_path / f"tokenizer.{side}.json") for side in ("source", "target"))
    assert (source.encode(["w36"]), target.encode(["w30"])) == ([[36]], [[30]])
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("w36").ids == [36, 2]


def _other():
    from transduce.config import RecurrentConfig
    from transduce.models import build

    return build(RecurrentConfig(vocab_size=31, embedding_size=5, hidden_size=7, readout_size=5, attention_size=11))
