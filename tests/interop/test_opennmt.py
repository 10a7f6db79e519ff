"""OpenNMT-py's models compute here what CTranslate2 makes of the same checkpoints, by its own converter."""

import argparse

import pytest
import torch
from torch.nn import functional as F

from tests.plain_transformer import (
    D_MODEL,
    HEADS,
    SOURCES,
    TARGETS,
    Plain,
    our_logits,
    plain_logits,
    random_weights,
    sinusoid_table,
)
from transduce.config import BadInputError
from transduce.inference import Engine
from transduce.interop import read_opennmt

OPTIONS = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "enc_layers": 2,
    "dec_layers": 3,
    "heads": HEADS,
    "position_encoding": True,
    "max_relative_positions": 0,
    "pos_ffn_activation_fn": "relu",
    "dropout": [0.3],
    "self_attn_type": "scaled-dot",
}
ATTENTION = {"q": "linear_query", "k": "linear_keys", "v": "linear_values", "o": "final_linear"}
NORMS = {
    ("encoder", "self"): "layer_norm",
    ("decoder", "self"): "layer_norm_1",
    ("decoder", "cross"): "layer_norm_2",
    ("encoder", "ffn"): "feed_forward.layer_norm",
    ("decoder", "ffn"): "feed_forward.layer_norm",
}
TABLE = sinusoid_table(50, interleaved=True)
# By its ids: <unk> 0, <blank> 1, <s> 2, </s> 3. Its encoder reads no end symbol.
SOURCE, TARGET = [5, 16, 9, 4], [22, 7, 7, 11]


def opennmt_name(name, *, gated):
    """A weight's name in the model's part of a checkpoint."""
    *parts, kind = name.split(".")
    if len(parts) == 2:
        return f"{parts[0]}.layer_norm.{kind}"
    side, number, sublayer, part = parts
    layer = f"encoder.transformer.{number}" if side == "encoder" else f"decoder.transformer_layers.{number}"
    if part == "norm":
        return f"{layer}.{NORMS[side, sublayer]}.{kind}"
    if sublayer == "ffn":
        return f"{layer}.feed_forward.{ {'1': 'w_3' if gated else 'w_1', '2': 'w_2', 'gate': 'w_1'}[part] }.{kind}"
    return f"{layer}.{'self_attn' if sublayer == 'self' else 'context_attn'}.{ATTENTION[part]}.{kind}"


# As OpenNMT's Tokenizer marks what stands without a space.
JOINED = {
    side: ["<unk>", "<blank>", "<s>", "</s>", "￭,", *(f"{side}{number}" for number in range(5, size))]
    for side, size in (("src", SOURCES), ("tgt", TARGETS))
}


def write(folder, weights, *, more=None, vocab=None, **options):
    """A checkpoint; ``more`` are weights besides, or in other places."""
    gated = "encoder.0.ffn.gate.weight" in weights
    places = {"source": "encoder.embeddings.make_embedding.emb_luts.0.weight"}
    places["target"] = places["source"].replace("encoder", "decoder")
    model = {
        places.get(name) or opennmt_name(name, gated=gated): tensor
        for name, tensor in weights.items()
        if not name.startswith("output")
    }
    tables = {f"{side}.embeddings.make_embedding.pe.pe": TABLE.unsqueeze(1) for side in ("encoder", "decoder")}
    model |= tables if more is None else more
    generator = {"weight": weights["output"], "bias": weights["output.bias"]}
    symbols = {
        side: ["<unk>", "<blank>", "<s>", "</s>", *(f"{side}{number}" for number in range(4, size))]
        for side, size in (("src", SOURCES), ("tgt", TARGETS))
    }
    stored = {
        "model": {name: each for name, each in model.items() if each is not None},
        "generator": generator,
        "vocab": symbols | {"data_task": "seq2seq", "decoder_start_token": "<s>"} if vocab is None else vocab,
        "opt": argparse.Namespace(**(OPTIONS | options)),
        "optim": {},
    }
    torch.save(stored, folder / "model.pt")
    return folder / "model.pt"


def ours(number):
    """Our id of one of its: <blank> is our padding, and all others keep their place."""
    return {0: 3, 1: 0, 2: 1, 3: 2}.get(number, number)


def check(path, plain, weights, positions=TABLE):
    expected = plain_logits(plain, weights, positions, SOURCE, [2, *TARGET])
    bundle = read_opennmt(path)
    # Ours gives every source its end symbol, which this model does not read.
    found = our_logits(bundle, [*SOURCE, 2], [1, *TARGET])
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    assert bundle.config.dropout == 0.3
    return bundle


@pytest.mark.parametrize("concatenated", [False, True])
def test_sinusoids_of_either_kind(tmp_path, concatenated):
    weights = random_weights(output_bias=True)
    table = sinusoid_table(50, closed=True) if concatenated else TABLE
    more = {f"{side}.embeddings.make_embedding.pe.pe": table.unsqueeze(1) for side in ("encoder", "decoder")}
    bundle = check(write(tmp_path, weights, more=more), Plain(pre=True, epsilon=1e-6), weights, table)
    assert bundle.config.sinusoid_layout == ("concatenated" if concatenated else "interleaved")
    assert not bundle.config.source_end


@pytest.mark.parametrize(("name", "activation"), [("silu", F.silu), ("gated-gelu", F.gelu)])
def test_gated_networks(tmp_path, name, activation):
    weights = random_weights(output_bias=True, gated=True, bias=False)
    path = write(tmp_path, weights, pos_ffn_activation_fn=name, norm_eps=1e-5)
    check(path, Plain(pre=True, epsilon=1e-5, activation=activation), weights)


def test_biases_of_some_maps_of_attention(tmp_path):
    weights = {
        name: tensor
        for name, tensor in random_weights(output_bias=True).items()
        if not name.endswith((".self.o.bias", ".cross.o.bias"))
    }
    zeros = {
        f"{name.removesuffix('.weight')}.bias": torch.zeros(D_MODEL) for name in weights if name.endswith(".o.weight")
    }
    check(write(tmp_path, weights), Plain(pre=True, epsilon=1e-6), weights | zeros)


def test_matrices_that_are_one(tmp_path):
    weights = random_weights(sources=TARGETS, output_bias=True, shared=True, tied=True)
    symbols = ["<unk>", "<blank>", "<s>", "</s>", *(f"w{number}" for number in range(4, TARGETS))]
    path = write(tmp_path, weights, vocab={"src": symbols, "tgt": symbols})
    bundle = check(path, Plain(pre=True, epsilon=1e-6), weights)
    assert (bundle.config.source_vocab_size, bundle.config.tied_projection) == (None, True)


def test_two_kinds_of_positions_at_once_are_refused(tmp_path):
    draws = torch.Generator().manual_seed(5)
    layers = [f"encoder.transformer.{number}" for number in range(2)]
    layers += [f"decoder.transformer_layers.{number}" for number in range(3)]
    name = "self_attn.relative_positions_embeddings.weight"
    more = {f"{layer}.{name}": torch.randn(5, D_MODEL // HEADS, generator=draws) for layer in layers}
    more |= {f"{side}.embeddings.make_embedding.pe.pe": TABLE.unsqueeze(1) for side in ("encoder", "decoder")}
    options = {"position_encoding": True, "max_relative_positions": 2}
    with pytest.raises(BadInputError, match="position_encoding = True: positions beside relative ones"):
        read_opennmt(write(tmp_path, random_weights(output_bias=True), more=more, **options))


@pytest.mark.parametrize("relative", [False, True])
def test_as_its_converter_to_ctranslate2_has_it(tmp_path, relative):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")
    from ctranslate2.converters import OpenNMTPyConverter

    weights, more, options = random_weights(output_bias=True), None, {}
    if relative:
        draws = torch.Generator().manual_seed(5)
        layers = [f"encoder.transformer.{number}" for number in range(2)]
        layers += [f"decoder.transformer_layers.{number}" for number in range(3)]
        name = "self_attn.relative_positions_embeddings.weight"
        more = {f"{layer}.{name}": torch.randn(5, D_MODEL // HEADS, generator=draws) for layer in layers}
        options = {"position_encoding": False, "max_relative_positions": 2}
    path = write(tmp_path, weights, more=more, **options)
    OpenNMTPyConverter(str(path), unsafe_deserialization=True).convert(str(tmp_path / "ct2"))
    runtime = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    texts = [" ".join(f"src{each}" for each in SOURCE)], [" ".join(f"tgt{each}" for each in TARGET)]
    (theirs,) = runtime.score_batch(*([text.split() for text in side] for side in texts))
    bundle = read_opennmt(path)
    ids = bundle.tokenizers.source.encode(texts[0]), bundle.tokenizers.target.encode(texts[1])
    found = Engine(bundle.model, bundle.tokenizers.special, "float32").score(*ids)
    assert found == pytest.approx([sum(theirs.log_probs)], abs=5e-4)
    assert (bundle.config.positions, bundle.config.scale_embedding) == (
        ("relative", False) if relative else ("sinusoidal", True)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_type": "rnn"}, "encoder_type = 'rnn'"),
        ({"decoder_type": "transformer_lm"}, "decoder_type = 'transformer_lm'"),
        ({"self_attn_type": "average"}, "self_attn_type = 'average'"),
        ({"layer_norm": "rms"}, "layer_norm = 'rms'"),
        ({"copy_attn": True}, "copy_attn = True"),
        ({"max_relative_positions": -1}, "rotary positions"),
        ({"max_relative_positions": -2}, "ALiBi"),
        ({"pos_ffn_activation_fn": "tanh"}, "pos_ffn_activation_fn = 'tanh'"),
        ({"transforms": ["onmt_tokenize"]}, "onmt_tokenize cuts words otherwise than SentencePiece and subword-nmt"),
        ({"transforms": ["prefix"], "tgt_prefix": "<de>"}, "tgt_prefix = '<de>': ours puts no symbols around texts"),
        (
            {"vocab": {side: ["<unk>", "<s>", "</s>"] for side in ("src", "tgt")} | {"decoder_start_token": "<de>"}},
            r"model\.pt: vocab\.tgt lacks <de>, the vocab\.decoder_start_token: no model of ours begins without",
        ),
        ({"vocab": JOINED}, "it has parts of words .￭,., and no file says how words are cut"),
        ({"heads": 3}, "heads = 3"),
        ({"vocab": {"src": 3, "tgt": []}}, "vocab.src = 3: a list of symbols belongs here"),
        ({"vocab": {"src": ["<unk>", 7], "tgt": []}}, r"vocab.src = \['<unk>', 7\]: a list of symbols belongs here"),
        ({"vocab": {"src": ["<unk>"]}}, "vocab.tgt is missing: a list of symbols"),
        ({"vocab": [3]}, r"vocab = \[3\]: a section with options by name belongs here"),
        ({"heads": "5"}, r"model\.pt: opt.heads = '5': a whole number from 1 to 1,048,576 belongs here"),
        ({"heads": -5}, "opt.heads = -5: a whole number"),
        ({"heads": 10**40}, "opt.heads = 10000000000000000000000000000000000000000: a whole number"),
        ({"dropout": ["much"]}, r"opt.dropout = \['much'\]: a rate belongs here"),
        ({"norm_eps": "small"}, "opt.norm_eps = 'small': a number from 0 belongs here"),
        ({"max_relative_positions": [2]}, r"opt.max_relative_positions = \[2\]: a whole number belongs here"),
        ({"pos_ffn_activation_fn": 4}, "opt.pos_ffn_activation_fn = 4: no model of ours has it"),
        ({"copy_attn": torch.ones(3)}, "opt.copy_attn = an object: no model of ours has it"),
        ({"vocab": {"src": ["<unk>", "a"], "tgt": ["<unk>"]}}, "the vocabulary lacks </s>"),
        ({"more": {"decoder.embeddings.make_embedding.emb_luts.1.weight": torch.ones(3, 5)}}, r"emb_luts\.1\.weight"),
        ({"more": {"encoder.layer_norm.weight": None}}, r"encoder\.layer_norm\.weight is missing"),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, options, message):
    path = write(tmp_path, random_weights(output_bias=True), **options)
    with pytest.raises(BadInputError, match=message) as refused:
        read_opennmt(path)
    assert len(str(refused.value).splitlines()) == 1


def test_what_is_no_such_checkpoint(tmp_path):
    torch.save({"model": {"x": torch.ones(3)}}, tmp_path / "model.pt")
    with pytest.raises(BadInputError, match="it lacks model, generator, vocab or opt"):
        read_opennmt(tmp_path / "model.pt")


def test_searches_are_as_its_command_has_them_and_other_transforms_are_named(tmp_path, caplog):
    bundle = read_opennmt(write(tmp_path, random_weights(output_bias=True), transforms=["filtertoolong", "docify"]))
    found = bundle.generation
    assert (found.beam_size, found.length_penalty, found.length_penalty_kind, found.max_length) == (5, 1, "marian", 250)
    assert "transforms docify are left out" in caplog.text
