"""Models of CTranslate2 come in as they went out, and others compute here what they compute there."""

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from tests.interop.marianmt import write as write_marianmt
from tests.interop.test_interop_ctranslate2 import MORE, REFUSED, SAYABLE, SOURCES, TARGETS, runtime
from tests.plain_transformer import our_logits
from tests.random_bundle import random_bundle
from transduce.config import BadInputError
from transduce.inference import Engine
from transduce.interop import ctranslate2_binary, ctranslate2_reader, export_ctranslate2, read_ctranslate2
from transduce.interop.ctranslate2 import _specify
from transduce.interop.ctranslate2_binary import read_binary
from transduce.interop.ctranslate2_reference import open_ctranslate2
from transduce.interop.options import Options
from transduce.text import Tokenizer, TokenizerPair
from transduce.text.tokenizer import SPECIAL_SYMBOLS

pytest_plugins = ["model_variants", "two_spm"]

# What it says in its own way comes back in that way: the same function of other weights.
SAID_OTHERWISE = ["beside", "learned beside", "multiplicative", "widths", *MORE.keys() - {"two vocabularies"}]


@pytest.fixture(scope="module")
def ct2():
    return pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")


def our_scores(found):
    return Engine(found.model, found.tokenizers.special, "float32").score(SOURCES, TARGETS)


def test_names_that_share_a_matrix_share_what_is_made_of_it(monkeypatch):
    """Or a small file of many names would take all memory."""
    numbers, scale = torch.ones(3, 5, dtype=torch.int8), torch.full((3,), 4.0)
    stored = {f"{name}": numbers for name in range(9)} | {f"{name}_scale": scale for name in range(9)}
    monkeypatch.setattr(ctranslate2_binary, "_parse", lambda *_: ("TransformerSpec", stored))
    found = read_binary(Path(__file__)).variables
    assert len({id(each) for each in found.values()}) == 1
    assert torch.equal(found["7"], torch.full((3, 5), 0.25))


@pytest.mark.parametrize("name", [*SAYABLE, *MORE])
def test_there_and_back(ct2, variants, tmp_path, name):
    ours = random_bundle(**(variants | MORE)[name])
    export_ctranslate2(ours, tmp_path / "out")
    back = read_ctranslate2(tmp_path / "out")
    assert back.tokenizers.target.to_json() == ours.tokenizers.target.to_json()
    if name in SAID_OTHERWISE:
        assert our_scores(back) == pytest.approx(our_scores(ours), abs=1e-4)
        return
    assert back.config == ours.config.model_copy(update={"initializer": back.config.initializer})
    weights = back.model.state_dict()
    assert weights.keys() == ours.model.state_dict().keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in ours.model.state_dict().items())


def test_every_sayable_variant_is_tried():
    assert not {*SAID_OTHERWISE} & {*REFUSED}
    assert {*SAID_OTHERWISE} < {*SAYABLE, *MORE}


def save(folder, ours, *, quantization=None, change=lambda spec: None, names=None, config=None):
    """A folder that its own classes write, after a change of what is in it."""
    with torch.no_grad():
        spec = _specify(ours.model)
    change(spec)
    for register, tokenizer in (
        (spec.register_source_vocabulary, ours.tokenizers.source),
        (spec.register_target_vocabulary, ours.tokenizers.target),
    ):
        register(names or [*tokenizer.vocabulary])
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir()
    spec.save(str(folder))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
    return folder


def check_scores(ct2, folder, order=tuple(range(31)), tolerance=5e-4):
    """The runtime's own scores and ours, symbol by symbol; symbol i of the vocabulary has our id ``order[i]``."""
    found = read_ctranslate2(folder)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    texts = [[[names[order.index(index)] for index in row] for row in rows] for rows in (SOURCES, TARGETS)]
    theirs = runtime(ct2, folder).score_batch(*texts)
    assert [sum(each.log_probs) for each in theirs] == pytest.approx(our_scores(found), abs=tolerance)
    return found


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16", "int8_float16"])
def test_numbers_of_fewer_bits_are_multiplied_out(ct2, tmp_path, quantization):
    changes = {"attention_bias": True, "output_bias": True}
    # The library rounds the weights that it is given in their place.
    folder = save(tmp_path / "out", random_bundle(**changes), quantization=quantization)
    # Sinusoids are ours again, whatever they were rounded to there.
    found = check_scores(ct2, folder, tolerance=5e-3 if quantization == "bfloat16" else 5e-4)
    weight, exact = (each.model.encoder[0].feed_forward.inner.weight for each in (found, random_bundle(**changes)))
    assert 0 < (weight - exact).abs().max() < 0.01 * exact.abs().max()
    assert found.config.positions == "sinusoidal"


def test_positions_that_it_makes_itself(ct2, tmp_path):
    def leave_out(spec):
        spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = "__optional"

    found = check_scores(ct2, save(tmp_path / "out", random_bundle(), change=leave_out))
    assert (found.config.sinusoid_layout, found.config.sinusoid_start) == ("concatenated", 1)


def test_a_decoder_that_begins_with_zeros(ct2, tmp_path):
    def begin(spec):
        spec.decoder.start_from_zero_embedding = True

    # Its begin symbol is one that no text has, behind our special symbols.
    found = check_scores(ct2, save(tmp_path / "out", random_bundle(), change=begin), order=(0, 4, 2, 3, *range(5, 32)))
    assert not found.model.embedding.weight[1].any()
    assert found.config.output_bias


def test_a_scale_of_its_own_is_part_of_the_queries(ct2, tmp_path):
    def rescale(spec):
        spec.encoder.layer[1].self_attention.queries_scale = spec.decoder.layer[0].attention.queries_scale = 0.3

    check_scores(ct2, save(tmp_path / "out", random_bundle(attention_bias=True), change=rescale))


def test_other_symbols_in_another_order(ct2, tmp_path):
    """As OpenNMT-py numbers them; the decoder begins with the end symbol, and its begin symbol is never read."""
    names = ["<unk>", "<blank>", "<s>", "</s>", *(f"w{number}" for number in range(4, 31))]
    folder = save(tmp_path / "out", random_bundle(), names=names, config={"decoder_start_token": "</s>"})
    # </s> is 3 there and 2 here; <s>, which comes behind our special symbols, is 4, and all words are one further.
    found = check_scores(ct2, folder, order=(3, 0, 4, 2, *range(5, 32)))
    assert [*found.tokenizers.target.vocabulary][:6] == [*SPECIAL_SYMBOLS, "[s]", "w4"]
    assert found.tokenizers.target.decode([[4, 5, 6]]) == ["w4 w5"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"add_source_bos": True}, "sources with a begin symbol"),
        ({"multi_query_attention": True}, "one key for several heads"),
        ({"decoder_start_token": "w9"}, "its tokenizer files are not of this model"),
        ({"decoder_start_token": 3}, r"config\.json: decoder_start_token = 3: text belongs here"),
        ({"add_source_bos": "yes"}, r"config\.json: add_source_bos = 'yes': true or false belongs here"),
        ({"add_source_eos": [1]}, r"add_source_eos = \[1\]: true or false belongs here"),
        ({"layer_norm_epsilon": "1e-6"}, "layer_norm_epsilon = '1e-6': a number from 0 belongs here"),
        ({"layer_norm_epsilon": -1}, "layer_norm_epsilon = -1: a number from 0 belongs here"),
        ({"layer_norm_epsilon": 10**20}, "layer_norm_epsilon = 100000000000000000000: a number from 0 belongs here"),
    ],
)
def test_settings_that_ours_has_not(ct2, tmp_path, config, message):
    export_ctranslate2(random_bundle(), tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(BadInputError, match=message):
        read_ctranslate2(tmp_path / "out")


def test_models_that_ours_has_not(ct2, tmp_path):
    def gelu(spec):
        spec.encoder.activation = spec.decoder.activation = np.int8(4)  # GELUSigmoid

    def alibi(spec):
        spec.decoder.alibi = True

    def heads(spec):
        spec.encoder.num_heads = np.int16(4)

    def none(spec):
        spec.encoder.num_heads = spec.decoder.num_heads = np.int16(-4)

    for number, (change, message) in enumerate(
        (
            (gelu, "decoder/activation = 4: GELUSigmoid"),
            (alibi, "decoder/alibi = 1"),
            (heads, "encoder/num_heads = 4, decoder/num_heads = 5: ours has one for both"),
            (none, "encoder/num_heads = -4: a whole number from 1"),
        )
    ):
        folder = save(tmp_path / str(number), random_bundle(), change=change)
        with pytest.raises(BadInputError, match=message):
            read_ctranslate2(folder)


@pytest.fixture(scope="module")
def written(ct2, tmp_path_factory):
    """The file of a small model."""
    folder = tmp_path_factory.mktemp("written") / "out"
    export_ctranslate2(random_bundle(positions="learned", max_positions=7), folder)
    return (folder / "model.bin").read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.0002, 0.001, 0.01, 0.2, 0.7, 0.999])
def test_a_shorter_file_is_damaged(written, tmp_path, share):
    (tmp_path / "model.bin").write_bytes(written[: int(share * len(written))])
    with pytest.raises(BadInputError, match=r"model\.bin: ") as refused:
        read_binary(tmp_path / "model.bin")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(100), "layout 67,324,752 of CTranslate2, or none"),
        (struct.pack("<IH", 6, 60_000), "60,000 bytes belong at 6"),
        (struct.pack("<IH2sII", 6, 2, b"a\0", 7, 2**32 - 1), "bytes belong at"),
        (
            struct.pack("<IH2sIIH2sB2IBI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 2, 2**20, 2**20, 0, 2**31),
            r"w has shape \(1048576, 1048576\), format 0 and 2,147,483,648 bytes: damaged",
        ),
        (struct.pack("<IH2sIIH2sBBI4xI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 0, 9, 4, 0), "format 9"),
        (struct.pack("<IH2sIIH2sBIBI4xI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 1, 4, 1, 4, 0), "integers without a scale"),
        (struct.pack("<IH2sIIH2sB70IBI4xI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 70, *[1] * 70, 0, 4, 0), "damaged model"),
        (struct.pack("<IH2sIIIH", 6, 2, b"a\0", 7, 0, 0, 1), "2 bytes behind its end"),
        (struct.pack("<IH2sIII", 6, 2, b"\xff\0", 7, 0, 0), "damaged model"),
    ],
)
def test_hostile_files(tmp_path, content, message):
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        read_binary(tmp_path / "model.bin")


def test_what_is_missing_is_named(ct2, tmp_path):
    export_ctranslate2(random_bundle(), tmp_path / "out")
    for name, message in (
        ("shared_vocabulary.json", r"source_vocabulary\.json: no such file"),
        ("config.json", r"config\.json: no such file"),
        ("model.bin", r"model\.bin: no such model"),
    ):
        (tmp_path / "out" / name).unlink()
        with pytest.raises(BadInputError, match=message):
            read_ctranslate2(tmp_path / "out")


def test_another_models_tokenizer(ct2, tmp_path):
    export_ctranslate2(random_bundle(), tmp_path / "out")
    other = Tokenizer(
        tokenizers.Tokenizer(
            tokenizers.models.WordLevel(
                {name: index for index, name in enumerate([*SPECIAL_SYMBOLS, *"abc"])}, unk_token="<unk>"
            )
        )
    )
    TokenizerPair.of(other).save(tmp_path / "out")
    with pytest.raises(BadInputError, match="its tokenizer files are not of this model"):
        read_ctranslate2(tmp_path / "out")


def test_what_its_converter_makes_of_a_marianmt_model(ct2, spm_folder, tmp_path):
    """Its scale of embeddings is a number, and the end of a text is left to the tokenizer of transformers."""
    pytest.importorskip("transformers", reason="transformers is missing: pip install 'transduce[interop]'")
    from ctranslate2.converters import TransformersConverter

    write_marianmt(tmp_path / "there", spm_folder)
    TransformersConverter(str(tmp_path / "there")).convert(str(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["add_source_eos"] is False
    codes = tmp_path / "there" / "source.spm"
    ours, theirs = read_ctranslate2(tmp_path / "out", codes), open_ctranslate2(tmp_path / "out", codes)
    assert (ours.config.source_end, ours.config.scale_embedding, ours.config.positions) == (True, True, "sinusoidal")
    source, target = [5, 9, 7, 12], [8, 11, 6]
    found, expected = our_logits(ours, [*source, 2], [1, *target]), theirs.logits(source, target)
    there = expected.isfinite()
    torch.testing.assert_close(found[there], expected[there], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("value", "scaled"), [(1.0, False), (math.sqrt(20), True)])
def test_a_scale_of_embeddings_may_be_a_number(value, scaled):
    numbers = Options.of({"encoder/scale_embeddings": value}, "model.bin")
    assert ctranslate2_reader._is_scaled(numbers, "encoder/scale_embeddings", 20) is scaled


def test_another_scale_of_embeddings_is_refused_and_so_is_an_end_that_nothing_tells_of():
    numbers, settings = Options.of({"encoder/scale_embeddings": 3.0}, "model.bin"), Options.of({}, "config.json")
    with pytest.raises(BadInputError, match=r"ours multiplies embeddings by sqrt\(d_model\), 4\.47214, or not"):
        ctranslate2_reader._is_scaled(numbers, "encoder/scale_embeddings", 20)
    with pytest.raises(BadInputError, match="left the end to a tokenizer of its own, nothing says: import the model"):
        ctranslate2_reader._reads_end(numbers, settings)
