"""eole's models compute here what eole makes of them, where it is installed, and what plain functions do."""

import json
import logging
import math
import shutil

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from tests.plain_transformer import (
    D_FF,
    D_MODEL,
    DECODER_LAYERS,
    ENCODER_LAYERS,
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
from transduce.interop import read_eole

pytest_plugins = ["two_spm"]

NAMES = {"source": "src_emb.embeddings.weight", "target": "tgt_emb.embeddings.weight", "output": "generator.weight"}
ATTENTION = {"q": "linear_query", "k": "linear_keys", "v": "linear_values", "o": "final_linear"}
NORMS = {
    ("encoder", "self"): "input_layernorm",
    ("encoder", "ffn"): "post_attention_layernorm",
    ("decoder", "self"): "input_layernorm",
    ("decoder", "cross"): "precontext_layernorm",
    ("decoder", "ffn"): "post_attention_layernorm",
}
TABLE = sinusoid_table(50, interleaved=True)
# By its ids: <unk> 0, <blank> 1, <s> 2, </s> 3. Its encoder reads no end symbol.
SOURCE, TARGET = [5, 16, 9, 4, 4, 7], [22, 7, 7, 11]
SYMBOLS = {
    side: ["<unk>", "<blank>", "<s>", "</s>", *(f"{side}{number}" for number in range(4, size))]
    for side, size in (("src", SOURCES), ("tgt", TARGETS))
}


def eole_name(name, *, gated):
    """A weight's name in the file."""
    if name in NAMES:
        return NAMES[name]
    *parts, kind = name.split(".")
    if len(parts) == 1:
        return f"generator.{kind}"
    if len(parts) == 2:
        return f"{parts[0]}.layer_norm.{kind}"
    side, number, sublayer, part = parts
    layer = f"{side}.transformer_layers.{number}"
    if part == "norm":
        return f"{layer}.{NORMS[side, sublayer]}.{kind}"
    if sublayer == "ffn":
        one = "up_proj" if gated else "gate_up_proj"
        return f"{layer}.mlp.{ {'1': one, 'gate': 'gate_up_proj', '2': 'down_proj'}[part] }.{kind}"
    return f"{layer}.{'self_attn' if sublayer == 'self' else 'context_attn'}.{ATTENTION[part]}.{kind}"


def config(*, model=None, embeddings=None, encoder=None, decoder=None, **more):
    """What it writes of a training: values of the model's for both sides, and of each side's own."""
    size = {"hidden_size": D_MODEL, "transformer_ff": D_FF, "heads": HEADS}
    sides = {
        "encoder": {"encoder_type": "transformer", "layers": ENCODER_LAYERS} | size | (encoder or {}),
        "decoder": {"decoder_type": "transformer", "layers": DECODER_LAYERS} | (decoder or {}),
    }
    inner = {"architecture": "transformer", "add_qkvbias": True, "add_ffnbias": True, "norm_eps": 1e-6} | size
    inner |= {"embeddings": {"position_encoding_type": "SinusoidalInterleaved"} | (embeddings or {})} | sides
    return {
        "src_vocab": "train.vocab",
        "share_vocab": False,
        "transforms": ["filtertoolong"],
        "data": {"corpus_1": {"path_src": "train.src", "transforms": ["filtertoolong"], "weight": 1}},
        "training": {"dropout": [0.3, 0.2], "attention_dropout": [0.15], "label_smoothing": 0.05},
        "model": inner | (model or {}),
        "transforms_configs": {"filtertoolong": {"src_seq_length": 256}},
    } | more


def write(folder, weights, *, more=None, without=(), vocab=None, settings=None, shards=1):
    """A folder as its trainer writes it: the files in a step's own folder, and links to them."""
    gated = "encoder.0.ffn.gate.weight" in weights
    stored = {eole_name(name, gated=gated): tensor.clone() for name, tensor in weights.items()}
    for number in range(DECODER_LAYERS):
        stored[f"decoder.transformer_layers.{number}.layer_scalar"] = torch.ones(1)
    stored |= {f"{side}.pe.pe": TABLE.unsqueeze(1).clone() for side in ("src_emb", "tgt_emb")} if more is None else more
    stored = {name: each for name, each in stored.items() if name not in without}
    step = folder / "step_700"
    step.mkdir()
    for number in range(shards):
        save_file(dict(list(stored.items())[number::shards]), step / f"model.{number:02}.safetensors")
    special = {"unk_token": "<unk>", "pad_token": "<blank>", "bos_token": "<s>", "eos_token": "</s>"}
    vocab = SYMBOLS | {"decoder_start_token": "<s>", "specials": special} if vocab is None else vocab
    (step / "vocab.json").write_text(json.dumps(vocab))
    (step / "config.json").write_text(json.dumps(config() if settings is None else settings))
    for file in step.iterdir():
        (folder / file.name).symlink_to(f"step_700/{file.name}")
    return folder


def ours(number):
    """Our id of one of its: <blank> is our padding, and all others keep their place."""
    return {0: 3, 1: 0, 2: 1, 3: 2}.get(number, number)


def compare(folder, expected):
    """``expected`` are the logits of SOURCE and TARGET behind its first symbol."""
    bundle = read_eole(folder)
    # Ours gives every source its end symbol, which this model does not read.
    found = our_logits(bundle, [*SOURCE, 2], [1, *TARGET])[:, [ours(each) for each in range(TARGETS)]]
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    return bundle


def check(folder, plain, weights, positions=TABLE):
    return compare(folder, plain_logits(plain, weights, positions, SOURCE, [2, *TARGET]))


@pytest.mark.parametrize("shards", [1, 3])
def test_sinusoids_by_turns(tmp_path, shards):
    weights = random_weights(output_bias=True)
    bundle = check(write(tmp_path, weights, shards=shards), Plain(pre=True, epsilon=1e-6), weights)
    assert (bundle.config.source_end, bundle.config.tied_projection, bundle.config.dropout) == (False, False, 0.3)
    assert (bundle.config.attention_dropout, bundle.config.label_smoothing) == (0.15, 0.05)
    assert (bundle.generation.beam_size, bundle.generation.length_penalty_kind) == (5, "marian")
    assert bundle.tokenizers.target.tokens([7]) == ["tgt7"]


@pytest.mark.parametrize(
    ("name", "activation", "gated"),
    [
        ("gelu", F.gelu, False),
        ("gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), False),
        ("silu", F.silu, False),
        ("gated-silu", F.silu, True),
        ("gated-gelu", F.gelu, True),
    ],
)
def test_activations_without_biases_and_concatenated_sinusoids(tmp_path, name, activation, gated):
    weights, table = random_weights(gated=gated, bias=False), sinusoid_table(50, closed=True)
    tables = {f"{side}.pe.pe": table.unsqueeze(1).clone() for side in ("src_emb", "tgt_emb")}
    model = {"add_qkvbias": False, "add_ffnbias": False, "mlp_activation_fn": name, "generator_bias": False}
    settings = config(model=model | {"norm_eps": 1e-4}, embeddings={"position_encoding_type": "SinusoidalConcat"})
    folder = write(tmp_path, weights, more=tables, settings=settings)
    check(folder, Plain(pre=True, epsilon=1e-4, activation=activation), weights, table)


@pytest.mark.parametrize("normalize", [False, True])
def test_learned_positions(tmp_path, normalize):
    """Where embeddings are scaled, their sums with positions are; the first positions are left out by an offset."""
    weights, draws = random_weights(output_bias=True), torch.Generator().manual_seed(3)
    table = 0.1 * torch.randn(19, D_MODEL, generator=draws)
    settings = config(
        embeddings={"position_encoding_type": "Learned", "n_positions": 19, "position_shift": 2, "normalize": normalize}
    )
    tables = {"src_emb.pe.weight": table, "tgt_emb.pe.weight": table[:17].clone()}
    folder = write(tmp_path, weights, more=tables, settings=settings)
    scale = math.sqrt(D_MODEL) if normalize else 1.0
    bundle = check(folder, Plain(pre=True, epsilon=1e-6, scale=scale), weights, scale * table[2:])
    assert bundle.config.longest == 15


def test_relative_positions(tmp_path):
    """Products of queries and vectors are not divided by sqrt(d_k), as those of queries and keys are."""
    weights, draws, width = random_weights(output_bias=True), torch.Generator().manual_seed(3), D_MODEL // HEADS
    vectors = {
        f"{side}.{number}.self.relative": torch.randn(5, width, generator=draws)
        for side, count in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS))
        for number in range(count)
    }
    more = {
        f"{side}.transformer_layers.{number}.self_attn.relative_positions_embeddings.weight": table
        for (side, number, *_), table in ((name.split("."), table) for name, table in vectors.items())
    }
    settings = config(embeddings={"position_encoding_type": "Relative", "n_positions": 2})
    folder = write(tmp_path, weights, more=more, settings=settings)
    plain = Plain(pre=True, epsilon=1e-6, scale=1.0, relative_scale=1.0)
    bundle = check(folder, plain, weights | vectors, torch.zeros(50, D_MODEL))
    assert (bundle.config.positions, bundle.config.max_relative_distance) == ("relative", 2)


def test_no_positions_and_heads_of_their_own_width(tmp_path):
    weights = random_weights(output_bias=True)
    draws = torch.Generator().manual_seed(3)
    wide = {name: each for name, each in weights.items() if not name.endswith((".o.bias", ".k.bias"))}
    for name in [name for name in wide if ".self." in name or ".cross." in name]:
        part, kind = name.split(".")[-2:]
        if part in ("q", "k", "v"):
            wide[name] = 0.3 * torch.randn(
                *((3 * HEADS, D_MODEL) if kind == "weight" else (3 * HEADS,)), generator=draws
            )
        elif part == "o":
            wide[name] = 0.3 * torch.randn(D_MODEL, 3 * HEADS, generator=draws)
    settings = config(
        model={"head_dim": 3, "attn_scaling": 3.0, "add_key_bias": False, "add_final_linear_bias": False},
        embeddings={"position_encoding_type": None},
    )
    bundle = read_eole(write(tmp_path, wide, more={}, settings=settings))
    assert (bundle.config.positions, bundle.config.d_k, bundle.config.d_v) == ("none", 3, 3)
    state = bundle.model.state_dict()
    assert state["encoder.0.self_attention.key.bias"].tolist() == [0.0] * 15
    assert state["decoder.2.cross_attention.query.bias"].tolist() == wide["decoder.2.cross.q.bias"].tolist()


def test_matrices_that_are_one(tmp_path):
    weights = random_weights(sources=TARGETS, output_bias=True, shared=True, tied=True)
    vocab = {"src": SYMBOLS["tgt"], "tgt": SYMBOLS["tgt"]}  # as its first versions wrote it
    settings = config(model={"share_embeddings": True, "share_decoder_embeddings": True}, share_vocab=True)
    left = ("tgt_emb.embeddings.weight", "generator.weight")
    folder = write(tmp_path, weights, vocab=vocab, settings=settings, without=left)
    bundle = check(folder, Plain(pre=True, epsilon=1e-6), weights)
    assert (bundle.config.source_vocab_size, bundle.config.tied_projection) == (None, True)


def test_a_decoder_that_begins_with_the_end_symbol(tmp_path):
    weights = random_weights(output_bias=True)
    folder = write(tmp_path, weights, vocab=SYMBOLS | {"decoder_start_token": "</s>"})
    bundle = read_eole(folder)
    expected = plain_logits(Plain(pre=True, epsilon=1e-6), weights, TABLE, SOURCE, [3, *TARGET])
    # Its own <s> is a symbol without a text, as nothing begins with it.
    places = {side: getattr(bundle.tokenizers, side).vocabulary for side in ("source", "target")}
    source = [places["source"][SYMBOLS["src"][each]] for each in SOURCE]
    target = [places["target"][SYMBOLS["tgt"][each]] for each in TARGET]
    found = our_logits(bundle, [*source, 2], [1, *target])
    rows = [3, 0, places["target"]["[s]"], 2, *(places["target"][name] for name in SYMBOLS["tgt"][4:])]
    torch.testing.assert_close(found[:, rows], expected, atol=2e-5, rtol=1e-5)
    assert found[:, 1].max() < -90


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            config(model={"architecture": "transformer_lm"}),
            "model.architecture = 'transformer_lm': no model of ours has it, only 'transformer'",
        ),
        (config(model={"architecture": "custom", "encoder": None}), "the section model.encoder is missing"),
        (
            config(encoder={"encoder_type": "brnn"}),
            "model.encoder.encoder_type = 'brnn': no model of ours has it, only 'transformer'",
        ),
        (config(model={"layer_norm": "rms"}), "model.layer_norm = 'rms'"),
        (config(encoder={"encoder_layer_style": "postnorm"}), "model.encoder.encoder_layer_style = 'postnorm'"),
        (
            config(embeddings={"position_encoding_type": "Rotary"}),
            "position_encoding_type = 'Rotary': no model of ours",
        ),
        (config(embeddings={"position_encoding_type": "Alibi"}), "position_encoding_type = 'Alibi'"),
        (config(embeddings={"embedding_type": "roberta"}), "embedding_type = 'roberta'"),
        (config(model={"heads_kv": 1}), "heads_kv = 1"),
        (config(model={"attn_scaling": 2.0}), "attn_scaling = 2.0"),
        (config(model={"num_experts": 4}), "num_experts = 4"),
        (config(model={"relative_positions_buckets": 32}), "relative_positions_buckets = 32"),
        (config(model={"mlp_activation_fn": "quick_gelu"}), "mlp_activation_fn = 'quick_gelu'"),
        (config(model={"generator_function": "sparsemax"}), "generator_function = 'sparsemax'"),
        (config(decoder={"heads": 4}), "model.encoder.heads = 5, model.decoder.heads = 4: ours has one for both"),
        (config(training={"quant_type": "bnb_NF4"}), "training.quant_type = 'bnb_NF4'"),
        (config(inference={"length_penalty": "wild"}), "inference.length_penalty = 'wild'"),
        # Values of a wrong type, and sizes that no memory has.
        (config(model={"norm_eps": "small"}), "model.norm_eps = 'small': a number from 0 belongs here"),
        (config(encoder={"heads": "5"}), "model.encoder.heads = '5': a whole number from 1 to 1,048,576 belongs here"),
        (config(encoder={"heads": True}), "model.encoder.heads = True: a whole number from 1 to"),
        (config(model={"share_embeddings": "yes"}), "model.share_embeddings = 'yes': true or false belongs here"),
        (config(model={"embeddings": 3}), "model.embeddings = 3: a section with options"),
        (config(model={"architecture": 3}), "model.architecture = 3: no model of ours has it"),
        (config(training={"dropout": ["much"]}), "training.dropout = .'much'.: a rate belongs here"),
        (config(training={"label_smoothing": math.nan}), "training.label_smoothing = nan: a rate belongs here"),
        (config(transforms=[3]), "transforms = .3.: a list of symbols belongs here"),
        (
            config(encoder={"layers": 10**12}),
            "model.encoder.layers = 1000000000000: a whole number from 1 to 1,048,576",
        ),
        (config(encoder={"layers": 40}, decoder={"layers": 40}), "encoder.transformer_layers.2.*is missing"),
        (
            config(encoder={"hidden_size": 10**6, "heads": 5}, decoder={"hidden_size": 10**6}),
            "where the settings ask for|no sinusoids of d_model = 1000000",
        ),
        (config(model={"transformer_ff": 10**6}, encoder={"transformer_ff": 10**6}), "the settings ask for .1000000"),
        # What its transforms make of text.
        (
            config(transforms=["sentencepiece", "prefix"], transforms_configs={"prefix": {"src_prefix": "<2de>"}}),
            "transforms_configs.prefix.src_prefix = '<2de>': ours puts no symbols",
        ),
        (config(data={"c": {"transforms": ["suffix"], "tgt_suffix": "<end>"}}), "data.c.tgt_suffix = '<end>'"),
        (config(transforms=["huggingface_tokenize"]), "huggingface_tokenize cuts words otherwise"),
        (
            config(transforms=["onmt_tokenize"], transforms_configs={"onmt_tokenize": {"src_subword_type": "bpe"}}),
            "onmt_tokenize cuts words otherwise",
        ),
        (
            config(transforms=["bpe"], transforms_configs={"bpe": {"src_subword_model": "/data/my.codes"}}),
            "src_subword_model = '/data/my.codes': my.codes is not in",
        ),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, settings, message):
    folder = write(tmp_path, random_weights(output_bias=True), settings=settings)
    with pytest.raises(BadInputError, match=message) as refused:
        read_eole(folder)
    assert len(str(refused.value).splitlines()) == 1
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"more": {f"{side}.pe.weight": torch.ones(47, D_MODEL).int() for side in ("src_emb", "tgt_emb")}},
            r"model\.00\.safetensors: src_emb\.pe\.weight is of int32: only weights of float16",
        ),
        ({"without": ["encoder.layer_norm.weight"]}, r"model\.00\.safetensors: encoder\.layer_norm\.weight is missing"),
        ({"without": ["generator.weight"]}, "generator.weight is missing"),
        ({"without": ["generator.bias"]}, "generator.bias is missing"),
        ({"without": ["tgt_emb.embeddings.weight"]}, "tgt_emb.embeddings.weight is missing"),
        (
            {"without": ["decoder.transformer_layers.1.self_attn.linear_keys.bias"]},
            r"decoder\.transformer_layers\.1\.self_attn\.linear_keys\.bias is missing",
        ),
        ({"more": {"src_emb.pe.pe": torch.ones(50, 1, D_MODEL)}}, r"src_emb\.pe\.pe has no sinusoids"),
        ({"more": {"mtp_heads.0.weight": torch.ones(3)}}, r"mtp_heads\.0\.weight among the weights"),
        (
            {"more": {"encoder.transformer_layers.0.self_attn.linear_query.lora_A": torch.ones(3)}},
            r"lora_A among the weights: adapters \(LoRA\) have to be merged",
        ),
        ({"vocab": {"src": 3, "tgt": []}}, r"vocab\.json: src = 3: a list of symbols belongs here"),
        ({"vocab": SYMBOLS | {"specials": {"eos_token": 3}}}, r"specials\.eos_token = 3: text belongs here"),
        ({"vocab": SYMBOLS | {"decoder_start_token": "<none>"}}, "the vocabulary lacks <none>"),
        ({"vocab": SYMBOLS | {"src": SYMBOLS["src"][:9]}}, r"has shape \(17, 20\), and its vocabulary 9 symbols"),
        (
            {"vocab": SYMBOLS | {"src": ["<blank>", "<unk>", "</s>", *SYMBOLS["src"][4:], "<s>"]}},
            "</s> has the id 2 in src and 3 in tgt",
        ),
    ],
)
def test_damaged_files(tmp_path, changes, message):
    folder = write(tmp_path, random_weights(output_bias=True), **changes)
    with pytest.raises(BadInputError, match=message):
        read_eole(folder)


@pytest.mark.parametrize("file", ["config.json", "vocab.json", "model.00.safetensors"])
def test_missing_and_shorter_files(tmp_path, file):
    folder = write(tmp_path, random_weights(output_bias=True))
    whole = (folder / file).read_bytes()
    for length in (0, 11, len(whole) // 2, len(whole) - 1):
        (folder / file).write_bytes(whole[:length])
        with pytest.raises(BadInputError, match=file.replace(".", r"\.")) as refused:
            read_eole(folder)
        assert len(str(refused.value).splitlines()) == 1
    (folder / file).unlink()
    with pytest.raises(BadInputError, match=file.replace(".", r"\.")):
        read_eole(folder)
    (folder / file).symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="a link out of its folder"):
        read_eole(folder)


def test_words_are_cut_by_the_file_that_a_transform_names(tmp_path, caplog):
    names = ["<unk>", "<blank>", "<s>", "</s>", "lo@@", "w"]
    vocab = {side: names + SYMBOLS[side][len(names) :] for side in ("src", "tgt")}
    bpe = {"src_subword_model": "${MODEL_PATH}/my.codes", "tgt_subword_model": "/elsewhere/my.codes"}
    settings = config(transforms=["normalize", "bpe", "filtertoolong"], transforms_configs={"bpe": bpe})
    folder = write(tmp_path, random_weights(output_bias=True), vocab=vocab, settings=settings)
    (folder / "my.codes").write_text("#version: 0.2\nl o\n")
    with caplog.at_level(logging.WARNING):
        tokenizer = read_eole(folder).tokenizers.source
    assert tokenizer.tokens(tokenizer.encode(["low"])[0]) == ["lo", "w</w>"]
    assert "transforms normalize are left out" in caplog.text
    (folder / "my.codes").rename(folder / "other.codes")
    with pytest.raises(BadInputError, match=r"my\.codes is not in"):
        read_eole(folder)
    assert read_eole(folder, folder / "other.codes").tokenizers.source.vocabulary == tokenizer.vocabulary


@pytest.mark.parametrize("transform", ["sentencepiece", "onmt_tokenize"])
def test_words_are_cut_by_sentencepiece(tmp_path, spm_folder, transform):
    import sentencepiece as spm

    model = spm.SentencePieceProcessor(str(spm_folder / "source.spm"))
    pieces = [model.id_to_piece(number) for number in range(3, len(model))]
    names = ["<unk>", "<blank>", "<s>", "</s>", *pieces]
    weights = random_weights(sources=len(names), targets=len(names), output_bias=True)
    kinds = {"src_subword_type": "sentencepiece", "tgt_subword_type": "sentencepiece"}
    cut = {"src_subword_model": "data/source.spm"} | (kinds if transform == "onmt_tokenize" else {})
    settings = config(transforms=[transform], transforms_configs={transform: cut}, share_vocab=True)
    folder = write(tmp_path, weights, vocab={"src": names, "tgt": names}, settings=settings)
    shutil.copy(spm_folder / "source.spm", folder)
    tokenizer = read_eole(folder).tokenizers.source
    text = "Bade fiki."
    assert tokenizer.tokens(tokenizer.encode([text])[0]) == model.encode(text, out_type=str)


# ----------------------------------------------------------------- in eole itself


def written_by_eole(folder, **model):
    """A model of random weights and its logits: made, run and written by eole."""
    reason = "eole is missing, which takes many libraries: pip install eole"
    pytest.importorskip("eole.models.model", reason=reason, exc_type=ImportError)
    import pyonmttok
    from eole.config.run import TrainConfig
    from eole.models.model import EncoderDecoderModel
    from eole.models.model_saver import TrainingModelSaver

    vocabs = {side: pyonmttok.build_vocab_from_tokens(names) for side, names in SYMBOLS.items()}
    special = {"unk_token": "<unk>", "pad_token": "<blank>", "bos_token": "<s>", "eos_token": "</s>"}
    vocabs |= {"specials": special, "decoder_start_token": "<s>"}
    values = {
        "architecture": "transformer",
        "layers": 2,
        "heads": HEADS,
        "hidden_size": D_MODEL,
        "transformer_ff": D_FF,
    }
    embeddings = {"word_vec_size": D_MODEL} | model.pop("embeddings", {})
    settings = TrainConfig(
        src_vocab="dummy",
        tgt_vocab="dummy",
        data={},
        model=values | {"embeddings": embeddings} | model,
        training={"model_path": str(folder), "dropout": [0.3], "attention_dropout": [0.1]},
    )
    torch.manual_seed(1)
    made = EncoderDecoderModel.build(settings.model, vocabs, settings.training)
    for name, parameter in made.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    made._prepare_for_inference(settings.training)
    saver = TrainingModelSaver(str(folder), made, settings, vocabs, transforms={})
    saver.update_step_dir(7)
    for write_part in (saver._save_vocab, saver._save_config, lambda: saver._save_weights(made.state_dict())):
        write_part()
    with torch.no_grad():
        hidden, *_ = made(torch.tensor([SOURCE]), torch.tensor([[2, *TARGET, 3]]), torch.tensor([len(SOURCE)]))
        return made.generator(hidden)[0]


@pytest.mark.parametrize(
    "model",
    [
        {"embeddings": {"position_encoding_type": "SinusoidalInterleaved"}},
        {"mlp_activation_fn": "gated-silu", "embeddings": {"position_encoding_type": "SinusoidalConcat"}},
        {
            "mlp_activation_fn": "gelu",
            "add_qkvbias": True,
            "add_ffnbias": True,
            "share_decoder_embeddings": True,
            "norm_eps": 1e-3,
            "embeddings": {"position_encoding_type": "Learned", "n_positions": 13, "normalize": True},
        },
        {
            "head_dim": 3,
            "generator_bias": False,
            "embeddings": {"position_encoding_type": "Relative", "n_positions": 2},
        },
        {"add_qkvbias": True, "add_key_bias": False, "embeddings": {"position_encoding_type": None}},
    ],
)
def test_as_eole_computes(tmp_path, model):
    compare(tmp_path, written_by_eole(tmp_path, **model))
