"""Models of JoeyNMT 2 (Kreutzer et al. 2019): a folder of ``best.ckpt``, ``config.yaml`` and vocabularies."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place
from transduce.config.model import Activation, NormPosition
from transduce.interop.checkpoints import load_checkpoint, stand_ins, tensors_of
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.options import Options, same
from transduce.interop.position_tables import take_positions
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines
from transduce.interop.yaml_files import read_yaml_file
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN

_log = logging.getLogger(__name__)

# Scores of its training may be NumPy's numbers.
_ALLOWED: Final = stand_ins("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype")
_ACTIVATIONS: Final[dict[str, Activation]] = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
_NORMS: Final[dict[str, NormPosition]] = {"pre": "pre", "post": "post"}
_EPSILON: Final = 1e-6
# Of its special symbols, the option that names one, and the name where it does not.
_SPECIAL: Final = {"pad_token": PAD, "bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN}
_ATTENTION: Final = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
_FEED_FORWARD: Final = {
    "feed_forward.inner": ".feed_forward.pwff_layer.0",
    "feed_forward.outer": ".feed_forward.pwff_layer.3",
    "feed_forward_residual.norm": ".feed_forward.layer_norm",
}
_NAMES: Final = Names(
    encoder="encoder.layers.{}",
    decoder="decoder.layers.{}",
    in_encoder={
        **{f"self_attention.{ours}": f".src_src_att.{theirs}" for ours, theirs in _ATTENTION.items()},
        "self_attention_residual.norm": ".layer_norm",
        **_FEED_FORWARD,
    },
    in_decoder={
        **{f"self_attention.{ours}": f".trg_trg_att.{theirs}" for ours, theirs in _ATTENTION.items()},
        "self_attention_residual.norm": ".x_layer_norm",
        **{f"cross_attention.{ours}": f".src_trg_att.{theirs}" for ours, theirs in _ATTENTION.items()},
        "cross_attention_residual.norm": ".dec_layer_norm",
        **_FEED_FORWARD,
    },
    whole={
        "embedding": "trg_embed.lut",
        "source_embedding": "src_embed.lut",
        "projection": "decoder.output_layer",
        "encoder_norm": "encoder.layer_norm",
        "decoder_norm": "decoder.layer_norm",
    },
)

T = TypeVar("T")


def read_joeynmt(folder: Path, codes: Path | None = None) -> Bundle:
    """The model of a folder: its best checkpoint, or the only one.

    Text is cut by the merges of ``codes``, or of the file of BPE codes in the folder; else at spaces.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
        TransduceError: PyYAML is not installed.
    """
    stored = load_joeynmt(folder, codes)
    checkpoint, sides, weights = stored.path, stored.sides, dict(stored.weights)
    values = _settings(weights, stored.options.section("model"), checkpoint)
    shape_of(weights, "decoder.output_layer.weight", checkpoint)
    tied = drop_equal(weights, "decoder.output_layer.weight", "trg_embed.lut.weight")
    shared = sides.tokenizers.shared and drop_equal(weights, "src_embed.lut.weight", "trg_embed.lut.weight")
    converted = convert(weights, _NAMES, values | {"tied_projection": tied}, sides, checkpoint, shared=shared)
    return Bundle(converted, sides.tokenizers, _read_search(stored.options))


def load_joeynmt(folder: Path, codes: Path | None = None) -> Stored:
    """What the files of a folder hold.

    Raises:
        BadInputError: A file is missing or damaged.
        TransduceError: PyYAML is not installed.
    """
    place = folder / "config.yaml"
    settings = Options.of(read_yaml_file(place), place)
    settings.section("model")  # of something else, nothing more is read
    checkpoint = _find_checkpoint(folder)
    stored = load_checkpoint(checkpoint, _ALLOWED)
    if not isinstance(stored, Mapping) or "model_state" not in stored:
        raise BadInputError(f"{checkpoint}: no checkpoint of JoeyNMT: it has no 'model_state'")
    weights = tensors_of(stored["model_state"], checkpoint)
    return Stored((checkpoint,), settings, weights, _read_sides(folder, settings, codes))


def _find_checkpoint(folder: Path) -> Path:
    found = [folder / "best.ckpt"] if (folder / "best.ckpt").exists() else sorted(folder.glob("*.ckpt"))
    if len(found) != 1:
        raise BadInputError(f"{folder}: has {len(found)} checkpoints and no best.ckpt: keep the one to be read")
    check_place(found[0])
    return found[0]


def _settings(weights: dict[str, Tensor], model: Options, path: Path) -> dict[str, Any]:
    encoder, decoder = model.section("encoder"), model.section("decoder")
    for side in (encoder, decoder):
        side.choice("type", {"transformer": True}, "recurrent")
        if side.number("alpha", 1.0) != 1:
            raise side.refuse("alpha", "ours has residual sums alone")

    def both(name: str, of_encoder: T, of_decoder: T) -> T:
        return same(model.place, {encoder.key(name): of_encoder, decoder.key(name): of_decoder})

    # Where nothing is said, its encoder's layers are pre-norm and its decoder's post-norm.
    norms = encoder.choice("layer_norm", _NORMS, "pre"), decoder.choice("layer_norm", _NORMS, "post")
    heads = encoder.size("num_heads", 4), decoder.size("num_heads", 8)
    activations = (side.choice("activation", _ACTIVATIONS, "relu") for side in (encoder, decoder))
    scales = (side.section("embeddings").flag("scale", default=False) for side in (encoder, decoder))
    d_ff, d_model = shape_of(weights, "decoder.layers.0.feed_forward.pwff_layer.0.weight", path)
    tables = ["encoder.pe.pe", "decoder.pe.pe"]
    weights |= {name: weights[name].squeeze(0) for name in tables if name in weights}
    return {
        "encoder_layers": count_layers(weights, "encoder.layers."),
        "decoder_layers": count_layers(weights, "decoder.layers."),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": both("num_heads", *heads),
        "attention_bias": True,
        "activation": both("activation", *activations),
        "norm": both("layer_norm", *norms),
        "final_norm": "decoder.layer_norm.weight" in weights,
        "norm_epsilon": _EPSILON,
        "scale_embedding": both("embeddings.scale", *scales),
        "dropout": decoder.rate("dropout", 0.1),
        **take_positions(weights, tables, d_model),
    }


def _read_search(settings: Options) -> GenerationConfig:
    """How its section ``testing`` has it search, of which -1 is none; where it says nothing, as its command does."""
    testing = settings.section("testing", optional=True)
    longest, ngram = (testing.integer(name, -1) for name in ("max_output_length", "no_repeat_ngram_size"))
    if testing.number("repetition_penalty", -1.0) not in (-1.0, 1.0):
        _log.warning(f"{testing.place}: repetition_penalty is left out: no search of ours has it")
    given: dict[str, object] = {
        "beam_size": testing.integer("beam_size", 1),
        "length_penalty": max(testing.number("beam_alpha", -1.0), 0.0),
        "max_length": longest if longest > 0 else None,
        "no_repeat_ngram": ngram if ngram > 0 else None,
    }
    try:
        return GenerationConfig().changed(given)
    except BadInputError as error:
        raise BadInputError(f"{testing.place}: {error}") from error


def _tell_text(data: Options) -> None:
    """Say what is done to text before its words are cut, which ours leaves to whoever gives it.

    Raises:
        BadInputError: Texts are cut into characters, or have a tag of their language before them.
    """
    if data.section("special_symbols", optional=True).given("lang_tags") not in (None, []):
        raise data.refuse("special_symbols", "lang_tags: ours puts no symbols around texts")
    for side in (data.section(name, optional=True) for name in ("src", "trg")):
        if side.text("level", "bpe") == "char":
            raise side.refuse("level", "texts of such models are cut into characters, which no reader of ours does")
        cut = side.section("tokenizer_cfg", optional=True)
        told = {
            "lowercase": side.flag("lowercase", default=False),
            "normalize": side.flag("normalize", default=False),
            "pretokenizer": cut.text("pretokenizer", "none") != "none",
        }
        if left := [name for name, given in told.items() if given]:
            _log.warning(f"{side.place}: {', '.join(map(side.key, left))}: give text as it is behind them")


def _read_sides(folder: Path, settings: Options, codes: Path | None) -> Sides:
    _tell_text(settings.section("data", optional=True))
    special = settings.section("data", optional=True).section("special_symbols", optional=True)
    called = {name: special.text(name, usual) for name, usual in _SPECIAL.items()}
    codes = find_codes(folder) if codes is None else codes
    places = (folder / "src_vocab.txt", folder / "trg_vocab.txt")
    source, target = (_read_vocabulary(place, called) for place in places)
    return Sides.of(source, target, (codes, codes), places)


def _read_vocabulary(path: Path, called: Mapping[str, str]) -> Vocabulary:
    names = read_lines(path)
    pad, begin, end, unknown = (index_of(names, called[name], path) for name in _SPECIAL)
    return Vocabulary.of(names, pad=pad, begin=begin, end=end, unknown=unknown)
