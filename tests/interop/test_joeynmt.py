"""JoeyNMT's models compute here what plain functions make of their weights."""

import json

import pytest
import torch
from torch.nn import functional as F

from tests.plain_transformer import (
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
from transduce.interop import read_joeynmt

SIDE = {
    "type": "transformer",
    "num_heads": HEADS,
    "layer_norm": "pre",
    "activation": "relu",
    "dropout": 0.3,
    "embeddings": {"scale": True},
}
EMBEDDINGS = {"source": "src_embed.lut", "target": "trg_embed.lut", "output": "decoder.output_layer"}
ATTENTION = {"q": "q_layer", "k": "k_layer", "v": "v_layer", "o": "output_layer"}
PLACES = {
    ("encoder", "self"): ("src_src_att", "layer_norm"),
    ("decoder", "self"): ("trg_trg_att", "x_layer_norm"),
    ("decoder", "cross"): ("src_trg_att", "dec_layer_norm"),
}
TABLE = sinusoid_table(50, interleaved=True)
# By its ids: <unk> 0, <pad> 1, <s> 2, </s> 3.
SOURCE, TARGET = [5, 16, 9, 4, 3], [2, 22, 7, 7, 11]


def joey_name(name):
    if name in EMBEDDINGS:
        return f"{EMBEDDINGS[name]}.weight"
    *parts, kind = name.split(".")
    if len(parts) == 2:
        return f"{parts[0]}.layer_norm.{kind}"
    side, number, sublayer, part = parts
    layer = f"{side}.layers.{number}"
    if sublayer == "ffn":
        inner = {"1": "pwff_layer.0", "2": "pwff_layer.3", "norm": "layer_norm"}[part]
        return f"{layer}.feed_forward.{inner}.{kind}"
    attention, norm = PLACES[side, sublayer]
    return f"{layer}.{norm}.{kind}" if part == "norm" else f"{layer}.{attention}.{ATTENTION[part]}.{kind}"


def write(folder, weights, *, pre=True, encoder=None, decoder=None, more=None, data=None, testing=None):
    state = {joey_name(name): tensor for name, tensor in weights.items()}
    if not pre:
        state = {name: tensor for name, tensor in state.items() if ".layers." in name or "layer_norm" not in name}
    state |= {f"{side}.pe.pe": TABLE.unsqueeze(0) for side in ("encoder", "decoder")} | (more or {})
    torch.save({"model_state": state, "optimizer_state": {}}, folder / "700.ckpt")
    (folder / "best.ckpt").symlink_to("700.ckpt")
    for side, size in (("src", SOURCES), ("trg", TARGETS)):
        symbols = ["<unk>", "<pad>", "<s>", "</s>", *(f"{side}{number}" for number in range(4, size))]
        (folder / f"{side}_vocab.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))
    sides = {"encoder": SIDE | (encoder or {}), "decoder": SIDE | (decoder or {})}
    # JSON is YAML.
    said = {"name": "test", "data": data or {}, "model": sides} | ({} if testing is None else {"testing": testing})
    (folder / "config.yaml").write_text(json.dumps(said))
    return folder


def ours(number):
    return {0: 3, 1: 0, 2: 1, 3: 2}.get(number, number)


def check(folder, plain, weights):
    bundle = read_joeynmt(folder)
    found = our_logits(bundle, [ours(each) for each in SOURCE], [ours(each) for each in TARGET])
    expected = plain_logits(plain, weights, TABLE, SOURCE, TARGET)
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    assert bundle.config.dropout == 0.3
    return bundle


@pytest.mark.parametrize("pre", [False, True])
def test_either_place_of_norms(tmp_path, pre):
    weights, changes = random_weights(tied=pre), {"layer_norm": "pre" if pre else "post"}
    bundle = check(
        write(tmp_path, weights, pre=pre, encoder=changes, decoder=changes), Plain(pre=pre, epsilon=1e-6), weights
    )
    assert bundle.config.tied_projection == pre
    assert not bundle.config.output_bias
    assert bundle.tokenizers.source.tokens([5]) == ["src5"]


def test_unscaled_embeddings_and_another_activation(tmp_path):
    weights, changes = random_weights(), {"embeddings": {"scale": False}, "activation": "gelu"}
    folder = write(tmp_path, weights, encoder=changes, decoder=changes)
    check(folder, Plain(pre=True, epsilon=1e-6, scale=1.0, activation=F.gelu), weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"type": "recurrent"}}, "model.encoder.type = 'recurrent'"),
        ({"decoder": {"alpha": 0.5}}, "model.decoder.alpha = 0.5"),
        ({"data": {"src": {"level": "char"}}}, "data.src.level = 'char': texts of such models are cut into characters"),
        ({"data": {"special_symbols": {"lang_tags": ["<de>"]}}}, "lang_tags: ours puts no symbols around texts"),
        ({"decoder": {"layer_norm": "post"}}, "encoder.layer_norm = 'pre', model.decoder.layer_norm = 'post': ours"),
        ({"decoder": {"num_heads": 4}}, "model.encoder.num_heads = 5, model.decoder.num_heads = 4: ours has one"),
        ({"decoder": {"activation": "tanh"}}, "model.decoder.activation = 'tanh'"),
        ({"decoder": {"embeddings": 3}}, "model.decoder.embeddings = 3: a section with options by name belongs here"),
        ({"decoder": {"embeddings": None}}, "the section model.decoder.embeddings is missing"),
        ({"encoder": {"type": None}}, "model.encoder.type = 'recurrent'"),
        ({"encoder": {"num_heads": "5"}}, "model.encoder.num_heads = '5': a whole number from 1 to 1,048,576 belongs"),
        ({"encoder": {"num_heads": 0}}, "model.encoder.num_heads = 0: a whole number from 1"),
        ({"encoder": {"num_heads": 5.0}}, "model.encoder.num_heads = 5.0: a whole number from 1"),
        ({"encoder": {"alpha": "1"}}, "model.encoder.alpha = '1': a number belongs here"),
        ({"encoder": {"layer_norm": True}}, "model.encoder.layer_norm = True: no model of ours has it, only 'pre' or"),
        ({"encoder": {"embeddings": {"scale": "no"}}}, "embeddings.scale = 'no': true or false belongs here"),
        ({"decoder": {"dropout": -0.5}}, "model.decoder.dropout = -0.5: a rate belongs here"),
        ({"more": {"decoder.ctc_output_layer.weight": torch.ones(3)}}, "ctc_output_layer.weight among the weights"),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(BadInputError, match=message) as refused:
        read_joeynmt(write(tmp_path, random_weights(), **changes))
    assert len(str(refused.value).splitlines()) == 1


def test_settings_that_are_merged(tmp_path):
    folder = write(tmp_path, random_weights())
    path = folder / "config.yaml"
    settings = json.loads(path.read_text())
    side, lines = settings["model"].pop("encoder"), {name: json.dumps(value) for name, value in settings.items()}
    lines["model"] = f"{lines['model'][:-1]}, encoder: {{<<: *side}}}}"
    path.write_text(f"side: &side {json.dumps(side)}\n" + "".join(f"{k}: {each}\n" for k, each in lines.items()))
    assert read_joeynmt(folder).config.encoder_layers == 2


def test_an_output_matrix_that_is_missing(tmp_path):
    folder = write(tmp_path, random_weights())
    (path,) = {each.resolve() for each in folder.glob("*.ckpt")}
    stored = torch.load(path)
    del stored["model_state"]["decoder.output_layer.weight"]
    torch.save(stored, path)
    with pytest.raises(BadInputError, match=r"decoder\.output_layer\.weight is missing among the weights"):
        read_joeynmt(folder)


def test_damaged_folders(tmp_path):
    folder = write(tmp_path, random_weights())
    (folder / "trg_vocab.txt").write_text("<unk>\n<pad>\n<s>\n")
    with pytest.raises(BadInputError, match=r"trg_vocab\.txt: the vocabulary lacks </s>"):
        read_joeynmt(folder)
    (folder / "best.ckpt").unlink()
    (folder / "best.ckpt").symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="a link out of its folder"):
        read_joeynmt(folder)
    (folder / "best.ckpt").unlink()
    (folder / "800.ckpt").write_bytes((folder / "700.ckpt").read_bytes())
    with pytest.raises(BadInputError, match=r"has 2 checkpoints and no best\.ckpt"):
        read_joeynmt(folder)
    (folder / "best.ckpt").symlink_to("700.ckpt")
    for text, message in (
        ("model: 5", "model = 5: a section with options by name belongs here"),
        ("name: x", "the section model is missing"),
        ("model: [", "not readable YAML"),
    ):
        (folder / "config.yaml").write_text(text)
        with pytest.raises(BadInputError, match=rf"config\.yaml: {message}"):
            read_joeynmt(folder)
    # Each merges the one before ten times over; tags that are no such scalars; lists in themselves.
    merged = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 20)
    )
    lists = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    for text, message in (
        (merged, r"not readable YAML: more than 100,000 settings by merging \(<<\)"),
        ("a: &a {<<: *a}", "not readable YAML"),
        ('a: !!int ""', "not readable YAML"),
        ("a: !!bool foo", "not readable YAML"),
        ("a: !!timestamp foo", "not readable YAML"),
        (f"{lists}model: *a39", r"model = \[\[\[\[\.\.\.\], .*: a section with options by name belongs here"),
    ):
        (folder / "config.yaml").write_text(text)
        with pytest.raises(BadInputError, match=rf"config\.yaml: {message}"):
            read_joeynmt(folder)
    special = json.dumps({"data": {"special_symbols": {"pad_token": 3}}, "model": {"encoder": SIDE, "decoder": SIDE}})
    (folder / "config.yaml").write_text(special)
    with pytest.raises(BadInputError, match=r"data\.special_symbols\.pad_token = 3: text belongs here"):
        read_joeynmt(folder)
    (folder / "config.yaml").write_text("model: [")
    with pytest.raises(BadInputError, match="not readable YAML"):
        read_joeynmt(folder)
    (folder / "config.yaml").unlink()
    with pytest.raises(BadInputError, match=r"config\.yaml: no such file"):
        read_joeynmt(folder)


def test_searches_are_as_its_section_has_them(tmp_path):
    testing = {"beam_size": 7, "beam_alpha": 0.8, "max_output_length": 90, "no_repeat_ngram_size": 3}
    for name, given in (("said", testing), ("silent", None)):
        (tmp_path / name).mkdir()
        found = read_joeynmt(write(tmp_path / name, random_weights(), testing=given)).generation
        values = (found.beam_size, found.length_penalty, found.max_length, found.no_repeat_ngram)
        assert values == ((7, 0.8, 90, 3) if given else (1, 0.0, None, None))


def test_what_is_done_to_text_before_it_is_cut_is_said(tmp_path, caplog):
    data = {"src": {"lowercase": True, "tokenizer_cfg": {"pretokenizer": "moses"}}, "trg": {"lowercase": False}}
    read_joeynmt(write(tmp_path, random_weights(), data=data))
    assert "data.src.lowercase, data.src.pretokenizer: give text as it is behind them" in caplog.text
    assert "data.trg" not in caplog.text
