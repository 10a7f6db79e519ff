"""Marian's models compute here what they compute there: its runtime gave the scores that the plain functions give."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.plain_transformer import (
    D_FF,
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
from tests.random_bundle import random_bundle
from tests.two_spm import learn, sentences
from transduce.bundle import save_bundle
from transduce.cli import main
from transduce.config import BadInputError
from transduce.interop.logits import as_tokens, known_logits
from transduce.interop.marian_export import export_marian
from transduce.interop.marian_npz import read_marian
from transduce.interop.npz import read_npz
from transduce.text import TokenizerPair, import_sentencepiece, learn_bpe

OPTIONS = {
    "type": "transformer",
    "dim-emb": D_MODEL,
    "enc-depth": 2,
    "dec-depth": 3,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": D_FF,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": '""',
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": "false",
    "transformer-train-position-embeddings": "false",
    "transformer-tied-layers": "[]",
    "transformer-dropout": 0.1,
    "tied-embeddings-all": "true",
    "right-left": "false",
}
SUBLAYERS = {"self": "self", "cross": "context", "ffn": "ffn"}
EMBEDDINGS = {
    "source": "encoder_Wemb",
    "target": "decoder_Wemb",
    "output": "decoder_ff_logit_out_Wt",
    "output.bias": "decoder_ff_logit_out_b",
}
POSITIONS = sinusoid_table(9, closed=True)
# By Marian's ids: </s> is 0 and <unk> 1.
SOURCE, TARGET = [5, 16, 9, 4, 0], [22, 7, 7, 11]


def marian_item(name, array, *, pre):
    """A weight's name and axes as the .npz has them."""
    if name in EMBEDDINGS:
        return EMBEDDINGS[name], array[None] if name == "output.bias" else array
    *parts, kind = name.split(".")
    norm = {"weight": "ln_scale", "bias": "ln_bias"}[kind]
    if len(parts) == 2:
        place = {"embedding_norm": "emb", "norm": "top"}[parts[1]]
        return f"{parts[0]}_{place}_{norm}{'_pre' if place == 'emb' else ''}", array[None]
    side, number, sublayer, part = parts
    place = f"{side}_l{int(number) + 1}_{SUBLAYERS[sublayer]}"
    if part == "norm":
        return f"{place}_{'ffn' if sublayer == 'ffn' else 'Wo'}_{norm}{'_pre' if pre else ''}", array[None]
    return (f"{place}_W{part}", array.T) if kind == "weight" else (f"{place}_b{part}", array[None])


def arrays(weights, *, pre=False, top=False, shared=False):
    """The .npz's arrays, without its configuration."""
    stored = {}
    for name, tensor in weights.items():
        if name.endswith(("er.norm.weight", "er.norm.bias")) and not top:
            continue
        if shared and name in ("source", "output"):
            continue
        place, array = marian_item(name, tensor.numpy(), pre=pre)
        stored["Wemb" if shared and name == "target" else place] = np.ascontiguousarray(array)
    return stored


def write(folder, stored, **options):
    lines = "".join(f"{name}: {value}\n" for name, value in (OPTIONS | options).items())
    config = np.frombuffer(lines.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **stored, **{"special:model.yml": config})
    for name, size in (("source", SOURCES), ("target", TARGETS)):
        symbols = ["</s>", "<unk>", *(f"{name}{number}" for number in range(2, size))]
        content = "".join(f'"{symbol}": {number}\n' for number, symbol in enumerate(symbols))
        (folder / f"{name}.yml").write_text(content)
    return folder / "model.npz"


def ours(number):
    """Our id of one of Marian's: it has neither padding nor a begin symbol."""
    return {0: 2, 1: 3}.get(number, number + 2)


def read(path, *, shared):
    source, target = ("target", "target") if shared else ("source", "target")
    return read_marian(path, (path.with_name(f"{source}.yml"), path.with_name(f"{target}.yml")))


def check(path, plain, weights, positions=POSITIONS, *, shared=False):
    """Its decoder begins with zeros: in the plain model, with a row of zeros behind the vocabulary's."""
    weights = weights | {"target": torch.cat([weights["target"], torch.zeros(1, D_MODEL)])}
    expected = plain_logits(plain, weights, positions, SOURCE, [TARGETS, *TARGET])
    bundle = read(path, shared=shared)
    found = our_logits(bundle, [ours(each) for each in SOURCE], [1, *(ours(each) for each in TARGET)])
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    assert found[:, :2].max() < -50  # neither padding nor the begin symbol is ever written
    return bundle


@pytest.mark.parametrize("shared", [False, True])
def test_post_norm(tmp_path, shared):
    weights = random_weights(output_bias=True, shared=shared, tied=shared)
    path = write(tmp_path, arrays(weights, shared=shared), **{"transformer-ffn-activation": "swish"})
    bundle = check(path, Plain(epsilon=1e-6, activation=F.silu), weights, shared=shared)
    assert (bundle.config.source_vocab_size is None, bundle.config.tied_projection) == (shared, shared)
    assert bundle.config.dropout == 0.1


@pytest.mark.parametrize("top", [False, True])
def test_pre_norm(tmp_path, top):
    weights = random_weights(embedding_norm=True)
    options = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-emb": "nd"}
    path = write(
        tmp_path, arrays(weights, pre=True, top=top), **options, **{"transformer-postprocess-top": "n" if top else '""'}
    )
    check(path, Plain(epsilon=1e-6, pre=True, last_norm=top), weights)


@pytest.mark.parametrize("name", ["transformer-train-position-embeddings", "transformer-train-positions"])
def test_trained_positions_come_with_unscaled_embeddings(tmp_path, name):
    weights, table = random_weights(), 0.3 * torch.randn(11, D_MODEL, generator=torch.Generator().manual_seed(2))
    path = write(tmp_path, arrays(weights) | {"Wpos": table.numpy()}, **{name: "true"})
    bundle = check(path, Plain(epsilon=1e-6, scale=1.0), weights, table)
    assert bundle.config.max_positions == 11


def test_positions_that_were_to_be_trained_and_are_not_stored_are_sinusoids(tmp_path):
    """As version 1.12 has them, whatever it is told."""
    weights = random_weights()
    path = write(tmp_path, arrays(weights), **{"transformer-train-position-embeddings": "true"})
    assert check(path, Plain(epsilon=1e-6), weights).config.positions == "sinusoidal"


def test_without_positions_embeddings_are_unscaled(tmp_path):
    weights = random_weights()
    path = write(tmp_path, arrays(weights), **{"transformer-disable-position-embeddings": "true"})
    check(path, Plain(epsilon=1e-6, scale=1.0), weights, torch.zeros(9, D_MODEL))


@pytest.mark.parametrize(
    ("version", "activation"),
    [("v1.12.42 b7be0e9", F.gelu), ("v1.12.0 65bf82f", lambda x: x * torch.sigmoid(1.702 * x)), ("", F.gelu)],
)
def test_gelu_is_that_of_the_version(tmp_path, version, activation):
    weights = random_weights()
    options = {"transformer-ffn-activation": "gelu", "version": f'"{version}"'}
    check(write(tmp_path, arrays(weights), **options), Plain(epsilon=1e-6, activation=activation), weights)


def test_layers_that_are_one(tmp_path):
    weights = random_weights()
    stored = {name: each for name, each in arrays(weights).items() if not name.startswith("decoder_l3")}
    path = write(tmp_path, stored, **{"transformer-tied-layers": "[1, 2, 1]"})
    again = {name.replace("decoder.0.", "decoder.2."): each for name, each in weights.items() if "decoder.0." in name}
    check(path, Plain(epsilon=1e-6), weights | again)


def test_heads_whose_outputs_are_not_mapped(tmp_path):
    weights = random_weights()
    stored = {name: each for name, each in arrays(weights).items() if not name.endswith(("_Wo", "_bo"))}
    path = write(tmp_path, stored, **{"transformer-no-projection": "true"})
    one = {name: torch.eye(D_MODEL) for name in weights if name.endswith(".o.weight")}
    zero = {name: torch.zeros(D_MODEL) for name in weights if name.endswith(".o.bias")}
    check(path, Plain(epsilon=1e-6), weights | one | zero)


def test_narrower_networks_in_the_decoder(tmp_path):
    weights = random_weights()
    narrow = {
        name: each[:19] if name.endswith("ffn.1.bias") else each[:19] if ".ffn.1." in name else each[:, :19]
        for name, each in weights.items()
        if name.startswith("decoder") and (".ffn.1." in name or name.endswith("ffn.2.weight"))
    }
    path = write(tmp_path, arrays(weights | narrow), **{"transformer-decoder-dim-ffn": 19})
    assert check(path, Plain(epsilon=1e-6), weights | narrow).config.d_ff == D_FF


def test_without_biases(tmp_path):
    weights = random_weights(bias=False)
    check(write(tmp_path, arrays(weights)), Plain(epsilon=1e-6), weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transformer-heads": "five"}, "transformer-heads = 'five': a whole number"),
        ({"transformer-heads": "null"}, "transformer-heads is missing"),
        ({"transformer-preprocess": 7}, "transformer-preprocess = 7: text belongs here"),
        ({"transformer-dropout": "much"}, "transformer-dropout = 'much': a rate belongs here"),
        ({"transformer-ffn-activation": "[relu]"}, "transformer-ffn-activation = "),
        ({"transformer-tied-layers": "[1, 2, 9]"}, "transformer-tied-layers = "),
        ({"transformer-tied-layers": "one"}, "transformer-tied-layers = 'one'"),
        ({"transformer-disable-position-embeddings": "perhaps"}, "true or false belongs here"),
        ({"label-smoothing": "{a: 1}"}, "label-smoothing = "),
    ],
)
def test_an_option_of_a_wrong_type(tmp_path, options, message):
    with pytest.raises(BadInputError, match=rf"model\.npz: special:model\.yml: .*{message}") as refused:
        read(write(tmp_path, arrays(random_weights()), **options), shared=False)
    assert len(str(refused.value).splitlines()) == 1


def test_numbers_that_yaml_takes_for_text(tmp_path):
    path = write(tmp_path, arrays(random_weights()), **{"label-smoothing": "1e-05"})
    assert read(path, shared=False).config.label_smoothing == 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [("beam-size: many", "beam-size = 'many': a whole number"), ("normalize: [1]", "normalize = .*: a number")],
)
def test_a_setting_of_its_search_of_a_wrong_type(tmp_path, settings, message):
    path = write(tmp_path, arrays(random_weights()))
    (tmp_path / "model.npz.decoder.yml").write_text(settings + "\n")
    with pytest.raises(BadInputError, match=rf"model\.npz\.decoder\.yml: {message}"):
        read(path, shared=False)


def test_an_older_output_matrix(tmp_path):
    weights = random_weights()
    stored = arrays(weights)
    stored["decoder_ff_logit_out_W"] = stored.pop("decoder_ff_logit_out_Wt").T
    check(write(tmp_path, stored), Plain(epsilon=1e-6), weights)


def test_vocabularies_and_search_as_the_decoder_has_them(tmp_path):
    path = write(tmp_path, arrays(random_weights()))
    settings = (
        "relative-paths: true\nvocabs:\n  - source.yml\n  - /elsewhere/target.yml\nbeam-size: 6\nnormalize: 0.6\n"
    )
    (tmp_path / "model.npz.decoder.yml").write_text(settings)
    bundle = read_marian(path)
    assert bundle.tokenizers.source.tokens([2, 4]) == ["</s>", "source2"]
    assert bundle.tokenizers.target.tokens([4]) == ["target2"]
    assert (bundle.generation.beam_size, bundle.generation.length_penalty) == (6, 0.6)
    assert bundle.generation.length_penalty_kind == "marian"


def test_pieces_of_a_sentencepiece_model(tmp_path):
    import sentencepiece

    lines = io.StringIO("\n".join(f"the {word} of the {word}s runs" for word in ("low", "slow", "new", "renewal")))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_prefix=str(tmp_path / "vocab"),
        vocab_size=TARGETS,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    (tmp_path / "vocab.model").rename(tmp_path / "vocab.spm")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "vocab.spm"))
    size = theirs.vocab_size()
    weights = random_weights(targets=size, shared=True, tied=True)
    bundle = read_marian(write(tmp_path, arrays(weights, shared=True)))
    text = "the slow renewal runs"
    assert bundle.tokenizers.source.encode([text]) == [[ours(each) for each in theirs.encode(text)]]
    embedded = bundle.model.embedding.weight
    assert torch.equal(embedded[[ours(each) for each in range(size)]], weights["target"])


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (['"a:b": 2', "'it''s': 3"], ["a:b", "it's"]),
        (["yes: 2", "1e3: 3"], ["yes", "1e3"]),
        (['"\\"": 2', '"\\u00e9\\x41\\\\": 3'], ['"', "éA\\"]),
        (["? long key", ": 2", ":: 3"], ["long key", ":"]),
        (["#: 2", '"# ": 3'], None),
        (["---", "# of a corpus", "---: 2", "  # the rest", "--->: 3", "--- # an end"], ["---", "--->"]),
    ],
)
def test_symbols_of_a_yml(tmp_path, entries, expected):
    weights = random_weights(targets=4, shared=True, tied=True)
    path = write(tmp_path, arrays(weights, shared=True))
    (tmp_path / "target.yml").write_text("\n".join(["</s>: 0", "<unk>: 1", *entries, ""]))
    if expected is None:
        with pytest.raises(BadInputError, match="not numbered from 0"):
            read(path, shared=True)
        return
    assert read(path, shared=True).tokenizers.source.tokens([4, 5]) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "multi-transformer"}, "type = 'multi-transformer'"),
        ({"transformer-decoder-autoreg": "average-attention"}, "transformer-decoder-autoreg"),
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg = 'rnn'"),
        ({"transformer-ffn-activation": "tanh"}, "transformer-ffn-activation = 'tanh'"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth = 3"),
        ({"transformer-attention-mask": "alibi"}, "transformer-attention-mask = 'alibi'"),
        ({"transformer-postprocess": "dar"}, "-postprocess = 'ar'"),
        ({"transformer-postprocess": "dhn"}, "-postprocess = 'hn'"),
        ({"transformer-preprocess": "n"}, "transformer-preprocess = 'n'"),
        ({"right-left": "true"}, "right-left = True"),
        ({"transformer-heads": 3}, "heads = 3"),
        ({"lemma-dim-emb": 5}, "lemma-dim-emb = 5"),
        ({"type": "[transformer"}, "not readable YAML"),
        ({"type": "!!python/object/apply:os.system [touch run]"}, "not readable YAML"),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, options, message):
    path = write(tmp_path, arrays(random_weights()), **options)
    with pytest.raises(BadInputError, match=message) as refused:
        read(path, shared=False)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (['"a": 2', '"b": 2'], "the id 2 is of 'a' already"),
        (['"a": 2', '"b": 9'], "not numbered from 0"),
        (['"a": two'], r"target\.yml:3: a symbol and its id"),
        (["a"], r"target\.yml:3: a symbol and its id"),
        (['"▁aa": 2'], r"it has parts of words \(▁aa\)"),
    ],
)
def test_damaged_vocabularies(tmp_path, content, message):
    path = write(tmp_path, arrays(random_weights()))
    (tmp_path / "target.yml").write_text("\n".join(["</s>: 0", "<unk>: 1", *content]))
    with pytest.raises(BadInputError, match=message):
        read(path, shared=False)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_shorter_file_is_damaged(tmp_path, share):
    path = write(tmp_path, arrays(random_weights()))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BadInputError, match=r"model\.npz: no \.npz, or a damaged one") as refused:
        read(path, shared=False)
    assert len(str(refused.value).splitlines()) == 1


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([{}])), "no array of numbers"),
        (npy(np.ones(3, np.float32)).replace(b"(3,)", b"(9**9,)"), "is damaged"),
        (npy(np.ones(3, np.float32)).replace(b"(3,), ", b"(10**12,) "), "is damaged"),
        (npy(np.ones(3, np.float32)).replace(b"(3,)", b"(7,)"), "is damaged"),
        (b"", "is damaged"),
        (b"\x93NUMPY\x01\x00\xff\xff", "is damaged"),
    ],
)
def test_hostile_arrays(tmp_path, content, message):
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("Wemb.npy", content)
    with pytest.raises(BadInputError, match=rf"Wemb\.npy.*{message}"):
        read_npz(tmp_path / "model.npz")


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_a_damaged_compressed_archive(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "model.npz", "w", kind) as archive:
        archive.writestr("Wemb.npy", npy(np.arange(3, dtype=np.float32)))
    whole = bytearray((tmp_path / "model.npz").read_bytes())
    whole[50:60] = bytes(10)
    (tmp_path / "model.npz").write_bytes(whole)
    with pytest.raises(BadInputError, match="damaged, or compressed"):
        read_npz(tmp_path / "model.npz")


def test_an_archive_whose_names_are_no_text(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("Wé.npy", npy(np.ones(3, np.float32)))
    whole = (tmp_path / "model.npz").read_bytes().replace("é".encode(), b"\xff\xff")
    (tmp_path / "model.npz").write_bytes(whole)
    with pytest.raises(BadInputError, match=r"no \.npz, or a damaged one"):
        read_npz(tmp_path / "model.npz")


def test_a_compressed_archive(tmp_path):
    np.savez_compressed(tmp_path / "model.npz", Wemb=np.zeros((1000, 1000), np.float32))
    with pytest.raises(BadInputError, match="damaged, or compressed"):
        read_npz(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder_l3_ffn_W1": None}, "decoder_l3_ffn_W1 is missing"),
        ({"encoder_l1_self_Wq_QuantMultA": np.ones(1, np.float32)}, "encoder_l1_self_Wq_QuantMultA among the weights"),
        ({"encoder_l1_self_bq": np.ones((1, 3), np.float32)}, r"has shape \(3,\)"),
        ({"encoder_l1_self_Wq": np.ones((20, 20), np.int8)}, "is of int8"),
    ],
)
def test_damaged_weights(tmp_path, change, message):
    stored = {name: each for name, each in (arrays(random_weights()) | change).items() if each is not None}
    with pytest.raises(BadInputError, match=message):
        read(write(tmp_path, stored), shared=False)


def test_an_output_matrix_that_nothing_ties_is_missing(tmp_path):
    stored = arrays(random_weights(tied=True))
    stored.pop("decoder_ff_logit_out_Wt", None)
    stored.pop("decoder_ff_logit_out_W", None)
    untied = {"tied-embeddings-all": "false", "tied-embeddings": "false"}
    with pytest.raises(BadInputError, match="decoder_ff_logit_out_W is missing among the weights, and no option ties"):
        read(write(tmp_path, stored, **untied), shared=False)
    assert read(write(tmp_path, stored, **untied | {"tied-embeddings": "true"}), shared=False)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(BadInputError, match="no such model"):
        read_marian(tmp_path / "model.npz")
    np.savez(tmp_path / "model.npz", Wemb=np.ones(3, np.float32))
    with pytest.raises(BadInputError, match=r"lacks special:model\.yml"):
        read_marian(tmp_path / "model.npz")
    path = write(tmp_path, arrays(random_weights()))
    with pytest.raises(BadInputError, match="no vocabularies beside it"):
        read_marian(path)
    for name, shown in (("/", "''"), ('"a\\0b"', r"'a\\x00b'"), ("..", r"'\.\.'")):
        path.with_name("model.npz.decoder.yml").write_text(f"vocabs: [source.yml, {name}]\n")
        with pytest.raises(BadInputError, match=rf"decoder\.yml: vocabs .*: {shown} is no file's name"):
            read_marian(path)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["post", "pre", "learned"])
def test_there_and_back_bit_for_bit(tmp_path, shared, kind):
    pre = kind == "pre"
    weights = random_weights(
        sources=TARGETS if shared else SOURCES, output_bias=True, shared=shared, tied=shared, embedding_norm=pre
    )
    stored = arrays(weights, pre=pre, top=pre, shared=shared)
    options = {}
    if pre:
        options = {f"transformer-{name}": value for name, value in (("preprocess", "n"), ("postprocess", "da"))}
        options |= {"transformer-postprocess-emb": "nd", "transformer-postprocess-top": "n"}
    if kind == "learned":
        stored["Wpos"] = np.random.default_rng(3).normal(size=(11, D_MODEL)).astype(np.float32)
        options = {"transformer-train-position-embeddings": "true"}
    first = read(write(tmp_path, stored, **options), shared=shared)
    (tmp_path / "out").mkdir()
    export_marian(first, tmp_path / "out")
    back = read_npz(tmp_path / "out" / "model.npz")
    assert back.keys() - stored.keys() == {"special:model.yml"}
    assert all(np.array_equal(array, back[name]) and array.shape == back[name].shape for name, array in stored.items())
    again = read_marian(tmp_path / "out" / "model.npz")
    assert again.config == first.config
    assert again.generation == first.generation
    assert [*again.tokenizers.target.vocabulary] == [*first.tokenizers.target.vocabulary]
    states = again.model.state_dict(), first.model.state_dict()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "sinusoid_range = 'open' .*train with sinusoid_range = 'closed'"),
        ({"sinusoid_start": 2, "sinusoid_range": "closed"}, "sinusoid_start = 2"),
        ({"positions": "learned"}, "one table of positions"),
        ({"positions": "relative"}, "positions = 'relative'"),
        ({"activation": "gelu_tanh"}, "activation = 'gelu_tanh'"),
        ({"norm": "pre", "positions": "none"}, "norm = 'pre' .*begin symbol that has an embedding"),
        ({"embedding_norm": True, "positions": "none"}, "embedding_norm = True .*begin symbol"),
        ({"norm_epsilon": 1e-5}, "norm_epsilon = 1e-05"),
        ({"d_k": 3}, "d_k = 3"),
        ({"feed_forward": "gated"}, "feed_forward = 'gated'"),
        ({"decoder_self_attention": "average"}, "decoder_self_attention = 'average'"),
    ],
)
def test_what_marian_cannot_say_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(BadInputError, match=message):
        export_marian(random_bundle(**({"norm_epsilon": 1e-6} | changes)), tmp_path)
    assert not any(tmp_path.iterdir())


OURS = {
    "as the base model is": {},
    "sines first, biases": {"sinusoid_layout": "concatenated", "attention_bias": True, "output_bias": True},
    "a vocabulary for each side": {"source_vocab_size": 37, "activation": "gelu"},
    "an output matrix of its own": {"tied_projection": False, "activation": "silu"},
    "unscaled embeddings": {"scale_embedding": False},
    "no biases at all": {"feed_forward_bias": False},
    "no positions": {"positions": "none", "sinusoid_range": "open"},
}


@pytest.mark.parametrize("name", OURS)
def test_a_model_that_was_trained_here(tmp_path, name):
    """Its begin symbol has an embedding, and it gives padding and begin symbol a share of the softmax."""
    ours = random_bundle(**({"sinusoid_range": "closed"} | OURS[name]))
    export_marian(ours, tmp_path)
    stored = read_npz(tmp_path / "model.npz")
    assert stored["decoder_ff_logit_out_Wt"].shape == (31, 20)
    begins = stored["decoder_Wemb"][3]  # behind </s>, <unk>, <pad>
    assert not begins.any()
    back = read_marian(tmp_path / "model.npz")
    special = ours.tokenizers.special
    for pair in (([5, 9, 20], [7, 30, 11, 6]), ([4], [])):
        found, expected = (known_logits(each.model, *as_tokens(pair, special)) for each in (back, ours))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert back.tokenizers.source.to_json() == ours.tokenizers.source.to_json()


def test_a_symbol_with_a_space_goes_there_and_back(tmp_path):
    """No symbol of Marian's has one, as spaces part them; a sign that stands for one is another symbol."""
    tokenizer = learn_bpe([f"the low slow {word} ▁new renewal" for word in ("row", "grow")] * 20, 320)
    assert " the" in tokenizer.vocabulary
    assert "▁" in tokenizer.vocabulary
    size = tokenizer.vocab_size
    ours = replace(random_bundle(sinusoid_range="closed", vocab_size=size), tokenizers=TokenizerPair.of(tokenizer))
    export_marian(ours, tmp_path)
    lines = (tmp_path / "source.yml").read_text().splitlines()
    assert len(lines) == size
    assert f'"▁the": {tokenizer.vocabulary[" the"]}' in lines
    back = read_marian(tmp_path / "model.npz").tokenizers
    assert back.source.encode(["the ▁ new"]) == tokenizer.encode(["the ▁ new"])
    assert back.source is back.target
    (tmp_path / "source.yml").write_text("\n".join([*lines[:-1], f'"other": {size - 1}']))
    with pytest.raises(BadInputError, match="its tokenizer has other symbols than its vocabulary"):
        read_marian(tmp_path / "model.npz")


def test_a_vocabulary_that_is_a_sentencepiece_model_cuts_text_there(tmp_path):
    import sentencepiece

    learn(tmp_path)
    tokenizer = import_sentencepiece(tmp_path / "source.spm")
    size = tokenizer.vocab_size
    ours = replace(random_bundle(sinusoid_range="closed", vocab_size=size), tokenizers=TokenizerPair.of(tokenizer))
    (tmp_path / "out").mkdir()
    export_marian(ours, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.npz", "model.npz.decoder.yml", "vocab.spm"}
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "out" / "vocab.spm"))
    assert theirs.vocab_size() == size
    texts = sentences("source", 9, seed=4)
    moved = {0: 2, 1: 3, 2: 0, 3: 1}
    assert theirs.encode(texts) == [[moved.get(each, each) for each in ids] for ids in tokenizer.encode(texts)]
    back = read_marian(tmp_path / "out" / "model.npz")
    pair, special = ([5, 9, 20], [7, 30, 11, 6]), ours.tokenizers.special
    found, expected = (known_logits(each.model, *as_tokens(pair, special)) for each in (back, ours))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert back.tokenizers.source.to_json() == tokenizer.to_json()


def test_a_begin_symbol_of_its_vocabulary_keeps_its_share(tmp_path):
    """As SentencePiece numbers by itself: <unk> 0, <s> 1, </s> 2. Marian's decoder reads zeros, and not that <s>."""
    learn(tmp_path)
    (tmp_path / "source.spm").rename(tmp_path / "vocab.spm")
    weights = random_weights(targets=120, output_bias=True, shared=True, tied=True)
    path = write(tmp_path, arrays(weights, shared=True))
    bundle = read_marian(path)
    with pytest.raises(BadInputError, match="--codes codes: the model cuts words by its own vocab"):
        read_marian(path, codes=Path("codes"))
    begun = weights | {"target": torch.cat([weights["target"], torch.zeros(1, D_MODEL)])}
    expected = plain_logits(Plain(epsilon=1e-6), begun, POSITIONS, [5, 16, 2], [120, 22, 7])
    ours = [{0: 3, 1: 1, 2: 2}.get(each, each + 1) for each in range(120)]
    found = our_logits(bundle, [6, 17, 2], [1, 23, 8])
    torch.testing.assert_close(found[:, ours], expected, atol=2e-5, rtol=1e-5)


def test_the_verb_writes_it_with_its_certificate(tmp_path):
    weights = random_weights(sources=TARGETS, output_bias=True, shared=True, tied=True)
    save_bundle(read(write(tmp_path, arrays(weights, shared=True)), shared=True), tmp_path / "model")
    (tmp_path / "lines").write_text("target5 target9\ntarget16\n")
    command = ["export", str(tmp_path / "model"), "--to", "marian", "--out", str(tmp_path / "out")]
    assert main._run([*command, "--sentences", str(tmp_path / "lines")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("certificate.json", "model.npz", "model.npz.decoder.yml", "source.yml", "target.yml", "tokenizer.json")
    }
