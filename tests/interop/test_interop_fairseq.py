"""fairseq's models compute here what plain functions make of their weights; its port is in ``tests/oracle``."""

import argparse
import collections
import re
import sys
import types
import typing

import pytest
import torch
from torch.nn import functional as F

from tests.plain_transformer import (
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
from transduce.interop.fairseq import read_fairseq

OPTIONS = {
    "arch": "transformer_iwslt_de_en",
    "source_lang": "de",
    "target_lang": "en",
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "dropout": 0.3,
    "activation_fn": "relu",
    "task": "translation",
}
SUBLAYERS = {
    "self": ("self_attn", "self_attn_layer_norm"),
    "cross": ("encoder_attn", "encoder_attn_layer_norm"),
    "ffn": ("", "final_layer_norm"),
}
MAPS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj", "1": "fc1", "2": "fc2"}
# A source and a target by fairseq's ids: </s> is 2, and the target begins with it.
SOURCE, TARGET = [5, 16, 9, 4, 2], [2, 22, 7, 7, 11]


def fairseq_name(name):
    """A weight's name as its state dict has it."""
    embeddings = {
        "source": "encoder.embed_tokens.weight",
        "target": "decoder.embed_tokens.weight",
        "output": "decoder.output_projection.weight",
    }
    if name in embeddings:
        return embeddings[name]
    if found := re.fullmatch(r"(\w+)\.(\d)\.(self|cross|ffn)\.(\w+)\.(weight|bias)", name):
        side, number, sublayer, part, kind = found.groups()
        module, norm = SUBLAYERS[sublayer]
        inner = norm if part == "norm" else f"{module}.{MAPS[part]}".lstrip(".")
        return f"{side}.layers.{number}.{inner}.{kind}"
    return name.replace(".embedding_norm", ".layernorm_embedding").replace("er.norm", "er.layer_norm")


def state_dict(weights, *, pre=False, version=3.0):
    state = {fairseq_name(name): tensor for name, tensor in weights.items()}
    state |= {f"{side}.version": torch.tensor([version]) for side in ("encoder", "decoder")}
    state |= {f"{side}.embed_positions._float_tensor": torch.zeros(1) for side in ("encoder", "decoder")}
    return state if pre else {name: each for name, each in state.items() if not re.match(r"\w+\.layer_norm\.", name)}


def write(folder, state, shared=False, **options):
    """A checkpoint with its dictionaries, whose first four symbols every dictionary has without a line."""
    sizes = {"de": TARGETS if shared else SOURCES, "en": TARGETS}
    for language, size in sizes.items():
        prefix = "en" if shared else language
        lines = [f"{prefix}{number} {size - number}\n" for number in range(size - 4)]
        (folder / f"dict.{language}.txt").write_text("".join(lines))
    path = folder / "checkpoint_best.pt"
    torch.save({"args": argparse.Namespace(**(OPTIONS | options)), "model": state, "extra_state": {"epoch": 7}}, path)
    return path


def ours(number):
    """Our id of one of fairseq's: <s> 0, <pad> 1, </s> 2, <unk> 3 are 4, 0, 2, 3 here, and all others the same."""
    return {0: 4, 1: 0, 2: 2, 3: 3}.get(number, number + 1)


def check(path, expected):
    bundle = read_fairseq(path)
    found = our_logits(bundle, [ours(each) for each in SOURCE], [1, *(ours(each) for each in TARGET[1:])])
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    # The copy of the end symbol that the decoder begins with has no share of the probabilities.
    assert found[:, 1].max() < -50
    assert (bundle.config.dropout, bundle.config.norm_epsilon) == (0.3, 1e-5)
    assert (bundle.generation.beam_size, bundle.generation.length_penalty_kind) == (5, "marian")
    return bundle


FAIRSEQ_POSITIONS = sinusoid_table(9, closed=True, start=2)


@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("version", [3.0, 1.0])
def test_either_place_of_norms_and_one_matrix_for_all(tmp_path, pre, version):
    weights = random_weights(shared=True, tied=True, embedding_norm=True)
    state = state_dict(weights, pre=pre, version=version)
    path = write(tmp_path, state, shared=True, encoder_normalize_before=pre, decoder_normalize_before=pre)
    plain = Plain(pre=pre, last_norm=version > 1)
    bundle = check(path, plain_logits(plain, weights, FAIRSEQ_POSITIONS, SOURCE, TARGET))
    assert bundle.tokenizers.shared
    assert bundle.config.source_vocab_size is None
    assert bundle.config.tied_projection


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("gelu", F.gelu),
        ("gelu_accurate", lambda x: F.gelu(x, approximate="tanh")),
        ("gelu_fast", lambda x: F.gelu(x, approximate="tanh")),
        ("swish", F.silu),
    ],
)
def test_activations(tmp_path, name, activation):
    weights = random_weights(tied=True)
    path = write(tmp_path, state_dict(weights), activation_fn=name)
    check(path, plain_logits(Plain(activation=activation), weights, FAIRSEQ_POSITIONS, SOURCE, TARGET))


def test_an_old_one(tmp_path):
    """Before 2019: the maps of an attention in one matrix, norms by number, the output's matrix without a module."""
    weights = random_weights()
    state = state_dict(weights)
    for side, layers in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
        for number in range(layers):
            layer = f"{side}.layers.{number}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for kind in ("weight", "bias"):
                    parts = [state.pop(f"{layer}.{attention}.{letter}_proj.{kind}") for letter in "qkv"]
                    state[f"{layer}.{attention}.in_proj_{kind}"] = torch.cat(parts)
            names = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] * (side == "decoder")), "final_layer_norm"]
            for place, name in enumerate(names):
                for kind in ("weight", "bias"):
                    state[f"{layer}.layer_norms.{place}.{kind}"] = state.pop(f"{layer}.{name}.{kind}")
    state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")
    state["encoder.embed_positions.weights"] = torch.zeros(7, D_MODEL)
    check(write(tmp_path, state), plain_logits(Plain(), weights, FAIRSEQ_POSITIONS, SOURCE, TARGET))


def test_learned_positions_that_are_missing_are_named(tmp_path):
    path = write(tmp_path, state_dict(random_weights()), encoder_learned_pos=True, decoder_learned_pos=True)
    with pytest.raises(BadInputError, match=r"decoder\.embed_positions\.weight"):
        read_fairseq(path)


def test_learned_positions_begin_behind_those_of_padding(tmp_path):
    weights, table = random_weights(), 0.3 * torch.randn(2 + 11, D_MODEL, generator=torch.Generator().manual_seed(2))
    state = state_dict(weights) | {f"{side}.embed_positions.weight": table for side in ("encoder", "decoder")}
    path = write(tmp_path, state, encoder_learned_pos=True, decoder_learned_pos=True)
    bundle = check(path, plain_logits(Plain(), weights, table[2:], SOURCE, TARGET))
    assert bundle.config.max_positions == 11


def test_of_learned_positions_of_two_lengths_the_shorter_counts(tmp_path):
    weights, table = random_weights(), 0.3 * torch.randn(2 + 11, D_MODEL, generator=torch.Generator().manual_seed(2))
    longer = torch.cat([table, torch.ones(5, D_MODEL)])
    state = state_dict(weights) | {"encoder.embed_positions.weight": longer, "decoder.embed_positions.weight": table}
    path = write(tmp_path, state, encoder_learned_pos=True, decoder_learned_pos=True)
    bundle = check(path, plain_logits(Plain(), weights, table[2:], SOURCE, TARGET))
    assert bundle.config.max_positions == 11


def test_unscaled_embeddings(tmp_path):
    weights = random_weights()
    path = write(tmp_path, state_dict(weights), no_scale_embedding=True)
    check(path, plain_logits(Plain(scale=1.0), weights, FAIRSEQ_POSITIONS, SOURCE, TARGET))


def test_no_positions(tmp_path):
    weights = random_weights()
    path = write(tmp_path, state_dict(weights), no_token_positional_embeddings=True)
    check(path, plain_logits(Plain(), weights, torch.zeros(9, D_MODEL), SOURCE, TARGET))


MODEL = {name: each for name, each in OPTIONS.items() if not name.endswith("_lang") and name not in ("arch", "task")}
NEWER: dict[str, dict[str, typing.Any]] = {
    "common": {"seed": 1, "log_format": None},
    "model": MODEL | {"_name": "transformer_wmt_en_de", "decoder_input_dim": "${model.decoder_embed_dim}"},
    "task": {"_name": "translation", "source_lang": "de", "target_lang": "en", "left_pad": [True, False]},
    "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.2},
}


class Configuration:
    """Classes of omegaconf's names, which hold what they hold under its names."""

    def __init__(self, monkeypatch):
        self.kinds = {}
        for module, names in (
            ("base", ("Metadata", "ContainerMetadata")),
            ("dictconfig", ("DictConfig",)),
            ("listconfig", ("ListConfig",)),
            ("nodes", ("AnyNode", "FloatNode")),
        ):
            made = types.ModuleType(f"omegaconf.{module}")
            for name in names:
                self.kinds[name] = type(name, (), {"__module__": made.__name__})
                setattr(made, name, self.kinds[name])
            monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))

    def make(self, value, parent=None):
        about = self.kinds["ContainerMetadata"]()
        about.__dict__ |= {"ref_type": typing.Any, "object_type": dict, "key_type": int, "text": str}
        about._resolver_cache = collections.defaultdict(dict, {"env": {"a": 1}})
        name = {dict: "DictConfig", list: "ListConfig", float: "FloatNode"}.get(type(value), "AnyNode")
        node = self.kinds[name]()
        node.__dict__ |= {"_metadata": about, "_parent": parent}
        if isinstance(value, dict):
            node._content = {key: self.make(each, node) for key, each in value.items()}
        elif isinstance(value, list):
            node._content = [self.make(each, node) for each in value]
        else:
            node._val = value
        return node


def as_omegaconf_has_it(_monkeypatch):
    omegaconf = pytest.importorskip("omegaconf", reason="no extra has it: pip install omegaconf")
    return omegaconf.OmegaConf.create(NEWER)


def in_sections(monkeypatch):
    """As its model's dataclass has some options, and its oldest way of a namespace in a node."""
    sides = {side: {"attention_heads": HEADS, "normalize_before": False} for side in ("encoder", "decoder")}
    model = {name: each for name, each in NEWER["model"].items() if not name.startswith(("encoder", "decoder"))}
    task = argparse.Namespace(**NEWER["task"])
    return Configuration(monkeypatch).make(NEWER | {"model": model | sides, "task": task})


CONFIGURATIONS = {
    "plain": lambda _: NEWER,
    "namespaces": lambda _: {name: argparse.Namespace(**each) for name, each in NEWER.items()},
    "nodes": lambda monkeypatch: Configuration(monkeypatch).make(NEWER),
    "nodes in sections": in_sections,
    "omegaconf": as_omegaconf_has_it,
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_options_as_its_newer_versions_keep_them(tmp_path, monkeypatch, name):
    weights = random_weights()
    path = write(tmp_path, state_dict(weights))
    configuration = CONFIGURATIONS[name](monkeypatch)
    torch.save({"args": None, "cfg": configuration, "model": state_dict(weights)}, path)
    for module in [each for each in sys.modules if each.partition(".")[0] == "omegaconf"]:
        monkeypatch.delitem(sys.modules, module)  # it is not asked for
    bundle = check(path, plain_logits(Plain(), weights, FAIRSEQ_POSITIONS, SOURCE, TARGET))
    assert bundle.config.label_smoothing == 0.2
    assert "omegaconf" not in sys.modules


def test_what_newer_options_ask_for_besides_is_refused_by_name(tmp_path, monkeypatch):
    path = write(tmp_path, state_dict(random_weights()))
    for wrong, message in (
        (
            {"encoder_attention_heads": "${task.heads}"},
            r"cfg\.model\.encoder_attention_heads = '\$\{task\.heads\}': a w",
        ),
        ({"_name": "fconv"}, "architecture 'fconv'"),
        ({"encoder_attention_heads": collections.deque([1])}, "asks for collections.deque"),
    ):
        stored = Configuration(monkeypatch).make(NEWER | {"model": NEWER["model"] | wrong})
        torch.save({"cfg": stored, "model": state_dict(random_weights())}, path)
        with pytest.raises(BadInputError, match=message):
            read_fairseq(path)
    # A node that leads to itself.
    configuration = Configuration(monkeypatch).make(NEWER)
    endless = configuration._content["model"]._content
    endless["dropout"]._val = endless["dropout"]
    torch.save({"cfg": configuration, "model": state_dict(random_weights())}, path)
    with pytest.raises(BadInputError, match=r"cfg\.model\.dropout = an object: a rate belongs here"):
        read_fairseq(path)
    torch.save({"cfg": 3, "model": state_dict(random_weights())}, path)
    with pytest.raises(BadInputError, match="neither 'args' nor 'cfg'"):
        read_fairseq(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "fconv"}, "architecture 'fconv'"),
        ({"arch": "transformer_lm_big"}, "architecture 'transformer_lm_big'"),
        ({"arch": "transformer_unidirectional"}, "only encoder-decoder transformers that read all of the source"),
        ({"adaptive_softmax_cutoff": [4, 9]}, "adaptive_softmax_cutoff"),
        ({"encoder_normalize_before": True}, "encoder_normalize_before = True, args.decoder_normalize_before = False"),
        ({"decoder_attention_heads": 4}, "decoder_attention_heads = 4: ours has one for both"),
        ({"activation_fn": "tanh"}, "activation_fn = 'tanh': no model of ours has it, only 'relu' or"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "heads = 3 does not divide d_model = 20"),
        ({"encoder_attention_heads": None}, "args.encoder_attention_heads is missing: a whole number from 1"),
        ({"source_lang": None}, "args.source_lang is missing"),
        ({"source_lang": "../../etc/passwd"}, "passwd' is no language"),
        ({"source_lang": "fr"}, r"dict\.fr\.txt: no such file"),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, options, message):
    path = write(tmp_path, state_dict(random_weights()), **options)
    with pytest.raises(BadInputError, match=message):
        read_fairseq(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": 3}, "args.arch = 3: text belongs here"),
        ({"encoder_attention_heads": "5"}, r"args.encoder_attention_heads = '5': a whole number from 1 to 1,048,576 b"),
        ({"encoder_attention_heads": [5]}, r"args.encoder_attention_heads = \[5\]: a whole number"),
        ({"encoder_attention_heads": -5}, "args.encoder_attention_heads = -5: a whole number from 1"),
        ({"encoder_attention_heads": 2**70}, "args.encoder_attention_heads = 1180591620717411303424: a whole number"),
        ({"encoder_attention_heads": torch.ones(3)}, "args.encoder_attention_heads = an object: a whole number"),
        ({"encoder_normalize_before": "yes"}, "args.encoder_normalize_before = 'yes': true or false belongs here"),
        ({"activation_fn": ["relu"]}, r"args.activation_fn = \['relu'\]: no model of ours has it"),
        ({"dropout": "0.1"}, "args.dropout = '0.1': a rate belongs here"),
        ({"dropout": 1.5}, "args.dropout = 1.5: a rate belongs here"),
        ({"label_smoothing": float("nan")}, "args.label_smoothing = nan: a rate belongs here"),
        ({"adaptive_input": torch.ones(3)}, "args.adaptive_input = an object: no model of ours has it"),
        ({"source_lang": ["de"]}, r"args.source_lang = \['de'\]: text belongs here"),
    ],
)
def test_options_of_the_wrong_type_are_named(tmp_path, options, message):
    path = write(tmp_path, state_dict(random_weights()), **options)
    with pytest.raises(BadInputError, match=rf"checkpoint_best\.pt: {message}") as refused:
        read_fairseq(path)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder.layers.1.fc1.weight": None}, r"encoder\.layers\.1\.fc1\.weight is missing"),
        ({"encoder.layers.0.conv.weight": torch.ones(3)}, r"encoder\.layers\.0\.conv\.weight among the weights"),
        ({"encoder.layers.1.fc2.bias": torch.ones(3)}, r"shape \(3,\) where the settings ask for \(20,\)"),
        ({"encoder.layers.1.fc2.bias": torch.full((20,), torch.nan)}, "no finite numbers"),
        ({"decoder.layers.2.fc1.weight": torch.ones(1).expand(28, 20)}, "of which less is stored"),
        ({"decoder.embed_tokens.weight": torch.ones(24, 20)}, "shape"),
        ({"decoder.layers.0.self_attn.in_proj_weight": torch.tensor(1.0)}, "has no axes where rows belong"),
        ({"decoder.embed_positions.weight": torch.tensor(1.0)}, "has no axes where rows belong"),
        ({"decoder.output_projection.weight": None}, r"output_projection\.weight is missing among the weights"),
    ],
)
def test_damaged_weights(tmp_path, change, message):
    state = {name: each for name, each in (state_dict(random_weights()) | change).items() if each is not None}
    with pytest.raises(BadInputError, match=message):
        read_fairseq(write(tmp_path, state))


@pytest.mark.parametrize("option", ["share_decoder_input_output_embed", "share_all_embeddings"])
def test_an_output_matrix_is_the_embeddings_where_an_option_says_so(tmp_path, option):
    state = state_dict(random_weights(tied=True))
    del state["decoder.output_projection.weight"]
    assert read_fairseq(write(tmp_path, state, **{option: True})).config.tied_projection


def test_a_version_without_a_number_is_the_first(tmp_path):
    state = state_dict(random_weights())
    assert not read_fairseq(write(tmp_path, state | {"encoder.version": torch.zeros(0)})).config.final_norm


@pytest.mark.parametrize("line", ["low", "low many", "", "x 1\ny"])
def test_a_damaged_dictionary(tmp_path, line):
    path = write(tmp_path, state_dict(random_weights()))
    with (tmp_path / "dict.de.txt").open("a") as stream:
        stream.write(f"{line}\n")
    with pytest.raises(BadInputError, match=r"dict\.de\.txt:\d+: a symbol and its count"):
        read_fairseq(path)


def test_parts_of_words_need_the_merges(tmp_path):
    path = write(tmp_path, state_dict(random_weights()))
    names = ["low@@", "er</w>", *(f"w{number}" for number in range(SOURCES - 6))]
    (tmp_path / "dict.de.txt").write_text("".join(f"{name} 1\n" for name in names))
    with pytest.raises(BadInputError, match=r"dict\.de\.txt: it has parts of words \(low@@\)"):
        read_fairseq(path)


def test_words_are_cut_by_the_merges(tmp_path):
    """What the merges make and the dictionary lacks is unknown to the model: such symbols have that row."""
    weights = random_weights(shared=True, tied=True)
    path = write(tmp_path, state_dict(weights), shared=True)
    names = ["l@@", "o@@", "w", "e@@", "r", "low", "lo@@", *(f"x{number}" for number in range(TARGETS - 4 - 7))]
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("".join(f"{name} 1\n" for name in names))
    (tmp_path / "bpecodes").write_text("#version: 0.2\nl o\nlo w</w>\ne r</w>\n")
    bundle = read_fairseq(path)
    tokenizer = bundle.tokenizers.source
    ids = tokenizer.encode(["low lower we"])[0]
    # "er" is made by the merges and not in the dictionary; nor is "w@@", which no merge makes.
    assert tokenizer.tokens(ids) == ["low</w>", "lo", "<unk>", "er</w>", "<unk>", "<unk>"]
    assert ids[3] == TARGETS + 1
    embedded = bundle.model.embedding.weight
    assert torch.equal(embedded[ids[3]], weights["target"][3])
    assert tokenizer.decode([tokenizer.encode(["low low"])[0]]) == ["low low"]
    found = our_logits(bundle, [ids[3], 2], [1])
    assert found[0, TARGETS + 1] < -50


def test_words_are_cut_by_a_sentencepiece_model(tmp_path):
    """Its pieces have the dictionary's ids; one that the dictionary lacks has the unknown symbol's row."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="pip install 'transduce[sentencepiece]'")
    lines = [f"the {word} of the {word}s runs" for word in ("low", "slow", "new", "renewal")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=26,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    text = "the slow renewal runs"
    *_, missing = dict.fromkeys(theirs.encode(text, out_type=str))
    pieces = [theirs.id_to_piece(index) for index in range(3, theirs.vocab_size())]
    names = [piece for piece in reversed(pieces) if piece != missing]
    weights = random_weights(targets=4 + len(names), shared=True, tied=True)
    path = write(tmp_path, state_dict(weights), shared=True)
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("".join(f"{name} 1\n" for name in names))
    bundle = read_fairseq(path)
    (ids,) = bundle.tokenizers.source.encode([text])
    known = {name: ours(4 + index) for index, name in enumerate(names)}
    assert ids == [known.get(piece, 5 + len(names)) for piece in theirs.encode(text, out_type=str)]
    assert torch.equal(bundle.model.embedding.weight[5 + len(names)], weights["target"][3])
    assert bundle.tokenizers.target.decode([ids]) == [text]
