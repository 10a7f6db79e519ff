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
from transduce.config import BadInputError, TransduceError
from transduce.inference import Engine
from transduce.interop import ctranslate2_binary, ctranslate2_reader, export_ctranslate2, read_ctranslate2
from transduce.interop.ctranslate2 import _specify
from transduce.interop.ctranslate2_binary import read_binary
from transduce.interop.ctranslate2_reference import open_ctranslate2
from transduce.interop.logits import compare
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
    monkeypatch.setattr(ctranslate2_binary, "_parse", lambda *_: (6, "TransformerSpec", stored))
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
        ({"add_source_bos": None}, r"config\.json: add_source_bos is missing: true or false belongs there"),
        ({"add_source_eos": None}, r"config\.json: add_source_eos is missing: true or false belongs there"),
        ({"bos_token": None}, r"config\.json: bos_token is missing: text belongs there"),
        ({"decoder_start_token": None}, "decoder_start_token = None: its callers choose what the decoder begins with"),
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


FORMATS = {torch.float32: 0, torch.int8: 1, torch.int16: 2}


def write_binary(path, layout, revision, variables):
    """As its older versions wrote the file; a variable may be a number, or text."""

    def text(name):
        return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"

    content = struct.pack("<I", layout) + text("TransformerSpec") + struct.pack("<II", revision, len(variables))
    for name, value in variables.items():
        one = torch.frombuffer(bytearray(value.encode()), dtype=torch.int8) if isinstance(value, str) else value
        one = torch.tensor(one, dtype=torch.int8) if isinstance(one, int) else one
        content += text(name) + struct.pack(f"<B{one.dim()}I", one.dim(), *one.shape)
        content += struct.pack("<BI", FORMATS[one.dtype], one.nbytes) + one.numpy().tobytes()
    path.write_bytes(content + struct.pack("<I", 0))


def older(folder, layout, revision, said, config=None):
    """A folder without settings beside the variables; before revision 5, some of these were of both stacks."""
    path = save(folder, random_bundle(norm_epsilon=1e-3 if config else 1e-5)) / "model.bin"
    _, _, variables = ctranslate2_binary._parse(memoryview(path.read_bytes()), path)
    if revision < 5:
        for name in ("num_heads", "pre_norm", "activation"):
            variables[name] = variables.pop(f"encoder/{name}")
            del variables[f"decoder/{name}"]
    write_binary(path, layout, revision, variables | said)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.txt").write_text("".join(f"{name}\n" for name in names))
    (folder / "shared_vocabulary.json").unlink()
    (folder / "config.json").unlink()
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("layout", "revision", "said", "begin", "end"),
    [
        (5, 7, {}, "<s>", False),
        (5, 5, {"with_source_bos": 0, "with_source_eos": 1, "with_target_bos": 1}, "<s>", True),
        (4, 3, {"with_target_bos": 0, "with_relative_position": 0}, "</s>", False),
        (5, 7, {"bos_token": "w9", "with_source_eos": 1}, "w9", True),
    ],
)
def test_layouts_whose_settings_stand_beside_the_variables(ct2, tmp_path, layout, revision, said, begin, end):
    folder = older(tmp_path / "out", layout, revision, said)
    found = read_ctranslate2(folder)
    names = (folder / "shared_vocabulary.txt").read_text().split()
    variables = read_binary(folder / "model.bin").variables
    assert found.config.source_end is end
    assert torch.equal(found.model.embedding.weight[1], variables["decoder/embeddings/weight"][names.index(begin)])
    pairs = [([5, 9, 7, 12], [8, 11, 6]), ([16], [])]
    compared = compare(found.model, found.tokenizers.special, open_ctranslate2(folder), pairs)
    assert compared.same, compared


def test_of_a_file_beside_them_the_epsilon_alone_is_read(ct2, tmp_path):
    config = {"layer_norm_epsilon": 1e-3, "add_source_bos": True, "add_source_eos": True, "decoder_start_token": "w9"}
    folder = older(tmp_path / "out", 5, 7, {}, config)
    found = read_ctranslate2(folder)
    assert (found.config.norm_epsilon, found.config.source_end) == (1e-3, False)
    reference = open_ctranslate2(folder)
    assert compare(found.model, found.tokenizers.special, reference, [([5, 9, 7, 12], [8, 11, 6])]).same


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"with_source_bos": 1}, r"model\.bin: with_source_bos = 1: sources with a begin symbol"),
        ({"user_decoder_start_tokens": 1}, r"model\.bin: user_decoder_start_tokens = 1: its callers choose"),
        ({"with_target_bos": 7}, r"model\.bin: with_target_bos = 7: true or false belongs here"),
        ({"eos_token": "<end>"}, "the vocabulary lacks <end>"),
        ({"eos_token": "\udc80"}, "damaged model of CTranslate2"),
    ],
)
def test_settings_beside_the_variables_that_ours_has_not(ct2, tmp_path, said, message):
    said = {name: torch.tensor([-128], dtype=torch.int8) if each == "\udc80" else each for name, each in said.items()}
    with pytest.raises(BadInputError, match=message):
        read_ctranslate2(older(tmp_path / "out", 5, 7, said))


def test_a_model_that_its_runtime_does_not_run_is_told_in_its_words(ct2, tmp_path):
    folder = save(tmp_path / "out", random_bundle(), config={"layer_norm_epsilon": 1e-5, "add_source_eos": 1})
    found, reference = read_ctranslate2(folder), open_ctranslate2(folder)
    assert found.config.source_end
    message = r"model\.bin: CTranslate2 cannot compute this model: .*must be boolean"
    with pytest.raises(TransduceError, match=message):
        compare(found.model, found.tokenizers.special, reference, [([5], [6])])


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
        (
            struct.pack(
                *("<IH2sIIH2sB2IBI4xH8sB2IBI24xI", 6, 2, b"a\0", 7, 2, 2, b"w\0", 2, 2, 2, 1, 4),
                *(8, b"w_scale\0", 2, 2, 3, 0, 24, 0),
            ),
            "integers without a scale",
        ),
        (struct.pack("<IH2sIIH2sB70IBI4xI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 70, *[1] * 70, 0, 4, 0), "damaged model"),
        (
            struct.pack("<IH2sIIH2sBIBI4xI", 6, 2, b"a\0", 7, 1, 2, b"w\0", 1, 1, 3, 4, 0),
            "w is of int32: only weights of",
        ),
        (struct.pack("<IH16sI", 5, 16, b"TransformerSpec\0", 2), "revision 2 of TransformerSpec, whose variables have"),
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
