"""Sockeye's models compute here what Sockeye makes of them, where it is installed, and what plain functions do."""

import json
import logging
from pathlib import Path

import pytest
import torch
import yaml
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
from transduce.interop import read_sockeye, recognise
from transduce.interop.sockeye import _gather

EMBEDDINGS = {
    "source": "embedding_source.embedding.weight",
    "target": "embedding_target.embedding.weight",
    "output": "output_layer.weight",
}
SUBLAYERS = {
    ("encoder", "self"): "self_attention",
    ("decoder", "self"): "autoregr_layer",
    ("decoder", "cross"): "enc_attention",
    ("encoder", "ffn"): "ff",
    ("decoder", "ffn"): "ff",
}
TABLES = ("encoder.pos_embedding.weight", "decoder.pos_embedding.weight")
SINES = sinusoid_table(50)
# By its ids: <pad> 0, <unk> 1, <s> 2, </s> 3.
SOURCE, TARGET = [5, 16, 9, 4, 4, 7, 3], [2, 22, 7, 7, 11]
SYMBOLS = {
    side: ["<pad>", "<unk>", "<s>", "</s>", *(f"{side}{number}" for number in range(4, size))]
    for side, size in (("src", SOURCES), ("trg", TARGETS))
}
PRE = {"preprocess_sequence": "n", "postprocess_sequence": "dr"}
POST = {"preprocess_sequence": "", "postprocess_sequence": "drn"}


def stored(weights, *, pre):
    """The state that Sockeye writes: fused maps, in which each head has its keys before its values."""
    gated, place = "encoder.0.ffn.gate.weight" in weights, "pre" if pre else "post"
    feed_forward = {"1": "linear" if gated else "ff1", "gate": "ff1", "2": "ff2"}
    state = {}

    def pairs(name):
        """Keys and values, head by head."""
        heads = [weights[f"{name}.{each}.weight"].view(HEADS, -1, D_MODEL) for each in "kv"]
        return torch.stack(heads, 1).reshape(2 * D_MODEL, D_MODEL)

    for name, tensor in weights.items():
        *parts, kind = name.split(".")
        if name in EMBEDDINGS:
            state[EMBEDDINGS[name]] = tensor
        elif name == "output.bias":
            state["output_layer.bias"] = tensor
        elif len(parts) == 2:
            if pre:
                state[f"{parts[0]}.final_process.layer_norm.{kind}"] = tensor
        else:
            side, number, sublayer, part = parts
            layer, module = f"{side}.layers.{number}", SUBLAYERS[side, sublayer]
            if part == "norm":
                state[f"{layer}.{place}_{module}.layer_norm.{kind}"] = tensor
            elif sublayer == "ffn":
                state[f"{layer}.ff.{feed_forward[part]}.{kind}"] = tensor
            elif part == "o":
                state[f"{layer}.{module}.ff_out.weight"] = tensor
            elif part == "q" and sublayer == "self":
                fused = torch.cat([tensor, pairs(f"{side}.{number}.self")])
                state[f"{layer}.{module}.ff_in.weight"] = fused
            elif part == "q":
                state[f"{layer}.{module}.ff_q.weight"] = tensor
                state[f"{layer}.{module}.ff_kv.weight"] = pairs(f"{side}.{number}.cross")
    return state


def without_attention_biases(weights):
    return {
        name: each
        for name, each in weights.items()
        if not (name.endswith(".bias") and name.split(".")[-2] in ("q", "k", "v", "o"))
    }


def settings(*, data=(), embedding=(), both=(), encoder=(), decoder=(), **more):
    """Its configuration, as YAML of objects that have tags."""
    side = {
        "act_type": "relu",
        "attention_heads": HEADS,
        "block_prepended_cross_attention": False,
        "decoder_type": "transformer",
        "depth_key_value": D_MODEL,
        "dropout_act": 0.15,
        "dropout_attention": 0.2,
        "dropout_prepost": 0.3,
        "feed_forward_num_hidden": D_FF,
        "max_seq_len_source": 50,
        "max_seq_len_target": 50,
        "model_size": D_MODEL,
        "positional_embedding_type": "fixed",
        "use_glu": False,
        "use_lhuc": False,
    }
    side |= PRE | dict(both)
    embedded = {"allow_sparse_grad": False, "dropout": 0.0, "factor_configs": None, "num_embed": D_MODEL}
    sections = {
        "config_data": (
            "DataConfig",
            {"eop_id": -1, "max_seq_len_source": 50, "num_source_factors": 1, "num_target_factors": 1} | dict(data),
        ),
        "config_decoder": ("TransformerConfig", side | {"num_layers": DECODER_LAYERS} | dict(decoder)),
        "config_embed_source": ("EmbeddingConfig", embedded | {"num_factors": 1, "vocab_size": SOURCES}),
        "config_embed_target": ("EmbeddingConfig", embedded | {"vocab_size": TARGETS} | dict(embedding)),
        "config_encoder": ("TransformerConfig", side | {"num_layers": ENCODER_LAYERS} | dict(encoder)),
    }
    lines = ["!ModelConfig"]
    for name, (kind, values) in sections.items():
        lines += [f"{name}: !{kind}", *(f"  {each}: {json.dumps(value)}" for each, value in values.items())]
    lines[2:2] = [
        "  data_statistics: !DataStatistics",
        "    buckets:",
        "    - !!python/tuple",
        "      - 8",
        "      - 8",
    ]
    plain = {"config_length_task": None, "dtype": "float32", "lhuc": False, "weight_tying_type": "trg_softmax"} | more
    return "\n".join([*lines, *(f"{name}: {json.dumps(value)}" for name, value in plain.items())]) + "\n"


def write(folder, weights, *, config=None, pre=True, table=SINES, more=None, without=(), vocabularies=None):
    state = stored(weights, pre=pre) | dict.fromkeys(TABLES, table) | (more or {})
    torch.save({name: each for name, each in state.items() if name not in without}, folder / "params.best")
    (folder / "config").write_text(settings() if config is None else config)
    (folder / "version").write_text("3.1.34")
    for side, names in (SYMBOLS if vocabularies is None else vocabularies).items():
        found = names if isinstance(names, dict) else {name: number for number, name in enumerate(names)}
        (folder / f"vocab.{side}.0.json").write_text(json.dumps(found))
    return folder


def ours(number):
    """Our id of one of its: <s>, </s> and <unk> have other places, and all others keep theirs."""
    return {1: 3, 2: 1, 3: 2}.get(number, number)


def compare(folder, expected):
    """``expected`` are the logits of SOURCE, TARGET."""
    bundle = read_sockeye(folder)
    found = our_logits(bundle, [*map(ours, SOURCE)], [*map(ours, TARGET)])[:, [ours(each) for each in range(TARGETS)]]
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    return bundle


def check(folder, plain, weights, positions=SINES):
    return compare(folder, plain_logits(plain, weights, positions, SOURCE, TARGET))


def model_weights(**choices):
    return without_attention_biases(random_weights(output_bias=True, **choices))


def test_norms_before_sublayers(tmp_path):
    weights = model_weights()
    bundle = check(write(tmp_path, weights), Plain(pre=True, epsilon=1e-6), weights)
    config = bundle.config
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.3, 0.2, 0.15)
    assert (config.attention_bias, config.feed_forward_bias, config.tied_projection) == (False, True, False)
    assert (bundle.generation.beam_size, bundle.generation.length_penalty_kind) == (5, "marian")
    assert bundle.tokenizers.target.tokens([7]) == ["trg7"]
    assert recognise(tmp_path) == "sockeye"


@pytest.mark.parametrize(
    ("name", "activation", "gated"), [("swish1", F.silu, True), ("gelu", F.gelu, False), ("relu", F.relu, True)]
)
def test_norms_behind_sublayers_with_other_activations(tmp_path, name, activation, gated):
    weights = model_weights(gated=gated)
    config = settings(both=POST | {"act_type": name, "use_glu": gated})
    folder = write(tmp_path, weights, pre=False, config=config)
    check(folder, Plain(pre=False, epsilon=1e-6, activation=activation), weights)


def test_learned_positions(tmp_path):
    weights, draws = model_weights(), torch.Generator().manual_seed(3)
    table = torch.randn(13, D_MODEL, generator=draws)
    config = settings(both={"positional_embedding_type": "learned"})
    bundle = check(write(tmp_path, weights, table=table, config=config), Plain(pre=True, epsilon=1e-6), weights, table)
    assert bundle.config.longest == 13


def test_matrices_that_are_one(tmp_path):
    weights = model_weights(sources=TARGETS, shared=True, tied=True)
    config = settings(weight_tying_type="src_trg_softmax")
    folder = write(tmp_path, weights, config=config, vocabularies={"src": SYMBOLS["trg"], "trg": SYMBOLS["trg"]})
    bundle = check(folder, Plain(pre=True, epsilon=1e-6), weights)
    assert (bundle.config.source_vocab_size, bundle.config.tied_projection) == (None, True)


def test_numbers_of_sixteen_bits_are_read_as_they_are(tmp_path):
    weights = {name: each.half().float() for name, each in model_weights().items()}
    folder = write(tmp_path, weights, config=settings(dtype="float16"))
    state = torch.load(folder / "params.best")
    torch.save({name: each.half() for name, each in state.items()}, folder / "params.best")
    check(folder, Plain(pre=True, epsilon=1e-6), weights)


def test_what_no_output_depends_on_is_left_out(tmp_path, caplog):
    weights = model_weights()
    more = {
        "length_ratio.layers.0.weight": torch.ones(3),
        "nvs.proj.weight": torch.ones(3),
        "nvs.proj.bias": torch.ones(3),
    }
    with caplog.at_level(logging.WARNING):
        check(write(tmp_path, weights, more=more), Plain(pre=True, epsilon=1e-6), weights)
    assert "nvs.proj.weight is left out" in caplog.text


def test_words_are_cut_by_codes_in_the_folder(tmp_path):
    names = ["<pad>", "<unk>", "<s>", "</s>", "lo@@", "w"]
    vocabularies = {side: names + SYMBOLS[side][len(names) :] for side in SYMBOLS}
    folder = write(tmp_path, model_weights(), vocabularies=vocabularies)
    (folder / "bpe.codes").write_text("#version: 0.2\nl o\n")
    tokenizer = read_sockeye(folder).tokenizers.source
    assert tokenizer.tokens(tokenizer.encode(["low"])[0]) == ["lo", "w</w>"]


REFUSED = [
    (settings(data={"num_source_factors": 2}), "config_data.num_source_factors = 2: ours reads and writes words"),
    (settings(data={"num_target_factors": 2}), "config_data.num_target_factors = 2"),
    (settings(embedding={"factor_configs": [{"vocab_size": 3}]}), "config_embed_target.factor_configs"),
    (settings(lhuc=True), "lhuc = True"),
    (settings(both={"use_lhuc": True}), "use_lhuc = True"),
    (settings(both={"decoder_type": "ssru_transformer"}), "decoder_type = 'ssru_transformer'"),
    (settings(decoder={"block_prepended_cross_attention": True}), "block_prepended_cross_attention = True"),
    (settings(both={"preprocess_sequence": "rn"}), "behind a preprocess_sequence of 'rn'"),
    (
        settings(decoder=POST),
        "config_encoder.postprocess_sequence = 'pre', config_decoder.postprocess_sequence = 'post'",
    ),
    (settings(both={"act_type": "tanh"}), "act_type = 'tanh'"),
    (settings(decoder={"attention_heads": 4}), "config_decoder.attention_heads = 4: ours has one for both"),
    (settings(both={"positional_embedding_type": "none"}), "positional_embedding_type = 'none'"),
    (settings(dtype="int8"), "dtype = 'int8'"),
    # Values of a wrong type, and sizes that no memory has.
    (settings(both={"model_size": "20"}), "model_size = '20': a whole number"),
    (settings(both={"attention_heads": True}), "attention_heads = True"),
    (settings(both={"use_glu": "yes"}), "use_glu = 'yes': true or false"),
    (settings(decoder={"dropout_act": 7}), "dropout_act = 7: a rate"),
    (settings(decoder={"num_layers": 10**12}), "num_layers = 1000000000000: a whole number from 1 to"),
    (settings(encoder={"num_layers": 40}, decoder={"num_layers": 40}), "layers.2.* is missing"),
    (settings(both={"feed_forward_num_hidden": 10**6}), "the settings ask for .1000000"),
    (settings(both={"model_size": 10**6}), "a model_size of 1000000"),
    # Objects that nobody knows, and what is no settings at all.
    (settings() + "extra: !!python/object/apply:os.system ['touch made']\n", "not readable YAML.*os.system"),
    (settings() + "extra: !Unknown {}\n", "not readable YAML.*!Unknown"),
    ("- 3\n", "settings by name belong here"),
    ("a: [", "not readable YAML"),
    ("config_data: 3\n", "config_data = 3: a section with options"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, config, message):
    folder = write(tmp_path, model_weights(), config=config)
    with pytest.raises(BadInputError, match=message) as refused:
        read_sockeye(folder)
    assert len(str(refused.value).splitlines()) == 1
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"without": ["output_layer.weight"]}, r"params\.best: output_layer\.weight is missing"),
        ({"without": ["output_layer.bias"]}, "output_layer.bias is missing"),
        (
            {"without": ["encoder.final_process.layer_norm.weight"]},
            r"encoder\.final_process\.layer_norm\.weight is missing",
        ),
        (
            {"without": ["decoder.layers.1.enc_attention.ff_kv.weight"]},
            r"decoder\.layers\.1\.enc_attention.* is missing",
        ),
        ({"more": {"decoder.layers.1.enc_attention.ff_kv.weight": torch.ones(3)}}, r"ff_kv\.weight has shape \(3,\)"),
        (
            {"more": {"encoder.layers.0.self_attention.ff_in.weight": torch.ones(40, 20)}},
            r"ff_in\.weight has shape \(40, 20\)",
        ),
        ({"more": {"adapter.weight": torch.ones(3)}}, r"adapter\.weight among the weights"),
        ({"table": torch.ones(50, D_MODEL)}, r"pos_embedding\.weight has no sinusoids"),
        (
            {"vocabularies": SYMBOLS | {"src": SYMBOLS["src"][:9]}},
            r"has shape \(17, 20\), and its vocabulary 9 symbols",
        ),
        (
            {"vocabularies": SYMBOLS | {"src": {"<pad>": 0, "a": 0}}},
            r"vocab\.src\.0\.json: its ids are not the numbers",
        ),
        ({"vocabularies": SYMBOLS | {"trg": {"<pad>": True}}}, r"vocab\.trg\.0\.json: its ids are not"),
        ({"vocabularies": SYMBOLS | {"trg": ["a", *SYMBOLS["trg"][1:]]}}, r"vocab\.trg\.0\.json.*<pad>"),
    ],
)
def test_damaged_files(tmp_path, changes, message):
    folder = write(tmp_path, model_weights(), **changes)
    with pytest.raises(BadInputError, match=message):
        read_sockeye(folder)


@pytest.mark.parametrize("file", ["config", "version", "params.best", "vocab.src.0.json", "vocab.trg.0.json"])
def test_missing_and_shorter_files(tmp_path, file):
    folder = write(tmp_path, model_weights())
    whole = (folder / file).read_bytes()
    for length in (0, 1, len(whole) // 2):
        if file == "version" and length:
            continue
        (folder / file).write_bytes(whole[:length])
        with pytest.raises(BadInputError, match=file.replace(".", r"\.")) as refused:
            read_sockeye(folder)
        assert len(str(refused.value).splitlines()) == 1
    (folder / file).unlink()
    with pytest.raises(BadInputError, match=file.replace(".", r"\.")):
        read_sockeye(folder)
    (folder / file).symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="a link out of its folder"):
        read_sockeye(folder)


def test_version_2(tmp_path):
    folder = write(tmp_path, model_weights())
    (folder / "version").write_text("2.3.24\n")
    with pytest.raises(BadInputError, match=r"Sockeye '2\.3\.24': only models of version 3.*mx_to_pt"):
        read_sockeye(folder)


# ----------------------------------------------------------------- in Sockeye itself


def written_by_sockeye(folder, *, tying="none", **both):
    """A model of random weights and its logits: made, run and written by Sockeye."""
    reason = "Sockeye is missing, whose requirements are older than today's: pip install --no-deps sockeye"
    pytest.importorskip("sockeye.model", reason=reason, exc_type=ImportError)
    from sockeye import data_io, encoder, model, transformer

    statistics = data_io.DataStatistics(1, 0, 8, 8, 0, 0, 8, 8, SOURCES, TARGETS, 1.0, 0.1, [(8, 8)], [1], [8.0])
    values = {
        "model_size": D_MODEL,
        "attention_heads": HEADS,
        "feed_forward_num_hidden": D_FF,
        "act_type": "relu",
        "dropout_attention": 0.2,
        "dropout_act": 0.1,
        "dropout_prepost": 0.3,
        "positional_embedding_type": "fixed",
        "max_seq_len_source": 50,
        "max_seq_len_target": 50,
        "depth_key_value": D_MODEL,
    }
    values |= PRE | both
    config = model.ModelConfig(
        config_data=data_io.DataConfig(statistics, 50, 50, 1, 1),
        vocab_source_size=SOURCES,
        vocab_target_size=TARGETS,
        config_embed_source=encoder.EmbeddingConfig(SOURCES, D_MODEL, 0.0),
        config_embed_target=encoder.EmbeddingConfig(TARGETS, D_MODEL, 0.0),
        config_encoder=transformer.TransformerConfig(num_layers=2, **values),
        config_decoder=transformer.TransformerConfig(num_layers=3, **values),
        weight_tying_type=tying,
    )
    made = model.SockeyeModel(config)
    torch.manual_seed(1)
    for name, parameter in made.named_parameters():
        if "pos_embedding" not in name or both.get("positional_embedding_type") == "learned":
            torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.3)
    made.train()  # as at the end of its training, which is when it writes its weights
    made.save_parameters(str(folder / "params.best"))
    made.save_config(str(folder))
    made.save_version(str(folder))
    for side, names in SYMBOLS.items():
        (folder / f"vocab.{side}.0.json").write_text(json.dumps({name: each for each, name in enumerate(names)}))
    made.eval()
    source, target = (torch.tensor([ids]) for ids in (SOURCE, TARGET))
    with torch.no_grad():
        lengths = torch.tensor([[len(SOURCE), 1]]), torch.tensor([[len(TARGET), 1]])
        return made(source.unsqueeze(2), lengths[0], target.unsqueeze(2), lengths[1])["logits"][0]


@pytest.mark.parametrize(
    ("tying", "both"),
    [
        ("none", {}),
        ("trg_softmax", POST | {"act_type": "swish1", "use_glu": True}),
        ("trg_softmax", {"act_type": "gelu", "positional_embedding_type": "learned"}),
    ],
)
def test_as_sockeye_computes(tmp_path, tying, both):
    compare(tmp_path, written_by_sockeye(tmp_path, tying=tying, **both))
    assert yaml.compose((tmp_path / "config").read_text()).tag == "!ModelConfig"


def test_names_that_share_a_fused_map_share_what_it_is_taken_apart_into():
    """Or a small file of many names would take all memory."""
    fused = torch.arange(3 * 8 * 8, dtype=torch.float32).view(24, 8)
    stored = {f"x{number}.ff_in.weight": fused for number in range(9)}
    found = _gather(stored, 8, 2, Path("params"))
    assert len(found) == 27
    assert len({id(tensor) for tensor in found.values()}) == 3
