"""Models of OpenNMT-py 3 (Klein et al. 2017): a checkpoint of its ``transformer``, options and vocabularies in it."""

import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.model import Activation, FeedForwardKind
from transduce.interop.checkpoints import load_checkpoint, opened, stand_ins, tensors_of
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.options import Options
from transduce.interop.position_tables import take_positions
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of
from transduce.text.tokenizer import BEGIN, END, UNKNOWN

_log = logging.getLogger(__name__)

_ALLOWED: Final = stand_ins("argparse.Namespace")
_PAD: Final = "<blank>"
_EPSILON: Final = 1e-6
_GENERATOR: Final = "generator."
# What each option of the feed-forward networks computes.
_ACTIVATIONS: Final[dict[str, tuple[Activation, FeedForwardKind]]] = {
    "relu": ("relu", "mlp"),
    "gelu": ("gelu", "mlp"),
    "silu": ("silu", "gated"),
    "gated-gelu": ("gelu", "gated"),
}
# Options that change what is computed, with the values that ours can follow.
_SAYABLE: Final[dict[str, tuple[Any, ...]]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "layer_norm": ("standard",),
    "copy_attn": (False,),
    "relative_positions_buckets": (0,),
    "num_kv": (0,),
    "multiquery": (False,),
    "num_experts": (0,),
    "parallel_residual": (False,),
    "sliding_window": (0,),
    "generator_function": ("softmax",),
}
ATTENTION: Final = {"query": "linear_query", "key": "linear_keys", "value": "linear_values", "output": "final_linear"}
_PARTS: Final = {
    **{f"self_attention.{ours}": f".self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "self_attention.relative": ".self_attn.relative_positions_embeddings",
    "feed_forward.inner": ".feed_forward.inner",
    "feed_forward.gate": ".feed_forward.gate",
    "feed_forward.outer": ".feed_forward.w_2",
    "feed_forward_residual.norm": ".feed_forward.layer_norm",
}


def _tensor_name(module: str, kind: str) -> str:
    # One table of vectors, for keys and for values.
    return f"{module}.{'weight' if kind in ('keys', 'values') else kind}"


# No checkpoint says how it is searched for: as version 3's command does where nothing is told.
_SEARCH: Final = GenerationConfig(beam_size=5, length_penalty=1.0, length_penalty_kind="marian", max_length=250)
# Transforms of text that cut it, and that do nothing once a model is trained.
_CUTS: Final = frozenset({"bpe", "sentencepiece"})
_OF_TRAINING: Final = frozenset({"bart", "clean", "filtertoolong", "switchout", "tokendrop", "tokenmask", "uppercase"})

_NAMES: Final = Names(
    encoder="encoder.transformer.{}",
    decoder="decoder.transformer_layers.{}",
    in_encoder={**_PARTS, "self_attention_residual.norm": ".layer_norm"},
    in_decoder={
        **_PARTS,
        **{f"cross_attention.{ours}": f".context_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "self_attention_residual.norm": ".layer_norm_1",
        "cross_attention_residual.norm": ".layer_norm_2",
    },
    whole={
        "embedding": "decoder.embeddings.make_embedding.emb_luts.0",
        "source_embedding": "encoder.embeddings.make_embedding.emb_luts.0",
        "projection": "generator",
        "encoder_norm": "encoder.layer_norm",
        "decoder_norm": "decoder.layer_norm",
    },
    tensor=_tensor_name,
)


def read_opennmt(checkpoint: Path, codes: Path | None = None) -> Bundle:
    """The model of a checkpoint.

    Text is cut by the merges of ``codes``, or of the file of BPE codes beside the checkpoint; else at spaces. Its
    encoder does not read an end symbol.

    Raises:
        BadInputError: The file is missing or damaged, asks for a class that is no part of a model, or the model is one
            that ours cannot say, which is named.
    """
    stored = load_opennmt(checkpoint, codes)
    options, sides, weights = stored.options, stored.sides, _gather(stored.weights)
    complete_biases(weights, [f"_attn.{theirs}" for theirs in ATTENTION.values()], checkpoint)
    values = _settings(weights, options, checkpoint)
    source, target = (f"{_NAMES.whole[name]}.weight" for name in ("source_embedding", "embedding"))
    shape_of(weights, "generator.weight", checkpoint)
    tied = drop_equal(weights, "generator.weight", target)
    shared = sides.tokenizers.shared and drop_equal(weights, source, target)
    values |= {"tied_projection": tied, "output_bias": "output_bias" in weights}
    model = convert(weights, _NAMES, values, sides, checkpoint, shared=shared)
    return Bundle(model, sides.tokenizers, _SEARCH)


def load_opennmt(checkpoint: Path, codes: Path | None = None) -> Stored:
    """What a checkpoint holds; the weights of the generator, which it keeps apart, stand behind ``generator.``.

    Raises:
        BadInputError: As ``read_opennmt`` says.
    """
    stored = load_checkpoint(checkpoint, _ALLOWED)
    if not isinstance(stored, Mapping) or not {"model", "generator", "vocab", "opt"} <= stored.keys():
        raise BadInputError(f"{checkpoint}: no checkpoint of OpenNMT-py: it lacks model, generator, vocab or opt")
    parts = Options.of({name: opened(stored[name]) for name in ("opt", "vocab")}, checkpoint)
    options = parts.section("opt")
    _refuse_unsayable(options)
    _tell_transforms(options, codes)
    generator = tensors_of(stored["generator"], checkpoint)
    weights = tensors_of(stored["model"], checkpoint)
    # A module of several, whose first is the matrix, or the matrix alone.
    weights |= {f"{_GENERATOR}{name.rpartition('.')[2]}": each for name, each in generator.items()}
    return Stored((checkpoint,), options, weights, _read_sides(parts.section("vocab"), checkpoint, codes))


def _refuse_unsayable(options: Options) -> None:
    options.check(_SAYABLE)
    if (distance := options.integer("max_relative_positions", 0)) < 0:
        kind = {-1: "rotary positions", -2: "ALiBi"}.get(distance, "positions of another kind")
        raise options.refuse("max_relative_positions", f"{kind}: no model of ours has them")


def _read_sides(stored: Options, path: Path, codes: Path | None) -> Sides:
    """The vocabularies: lists of symbols, as versions from 3 on have them."""
    source, target = (stored.texts(side) for side in ("src", "tgt"))
    codes = find_codes(path.parent) if codes is None else codes
    begin = stored.text("decoder_start_token", BEGIN)
    sides = [
        Vocabulary.of(
            names,
            pad=names.index(_PAD) if _PAD in names else None,
            begin=names.index(begin) if begin in names else None,
            end=index_of(names, END, path),
            unknown=index_of(names, UNKNOWN, path),
        )
        for names in (source, target)
    ]
    if begin not in target:
        raise BadInputError(
            f"{path}: {stored.key('tgt')} lacks {begin}, the {stored.key('decoder_start_token')}: no model of ours "
            f"begins without a symbol"
        )
    return Sides.of(sides[0], sides[1], (codes, codes), (path, path))


def _tell_transforms(options: Options, codes: Path | None) -> None:
    """Say which of the transforms of text are left out.

    Raises:
        BadInputError: One of them cuts words otherwise than ours can, or puts symbols around texts.
    """
    used = [] if options.given("transforms") in (None, []) else options.texts("transforms")
    for name in (f"{side}_{kind}" for kind in ("prefix", "suffix") if kind in used for side in ("src", "tgt")):
        if options.given(name) not in (None, ""):
            raise options.refuse(name, "ours puts no symbols around texts")
    if "onmt_tokenize" in used and codes is None:
        raise options.refuse(
            "transforms",
            "onmt_tokenize cuts words otherwise than SentencePiece and subword-nmt do: name a file of theirs with "
            "--codes if it comes to the same",
        )
    known = {*_CUTS, *_OF_TRAINING, "onmt_tokenize", "prefix", "suffix"}
    if left := [name for name in used if name not in known]:
        _log.warning(f"{options.place}: transforms {', '.join(left)} are left out: give text as it is behind them")


def _gather(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All weights under their newest names; the maps of a feed-forward network by what they are."""
    weights: dict[str, Tensor] = {}
    for stored, tensor in model.items():
        name = stored.replace(".a_2", ".weight").replace(".b_2", ".bias")
        layer = name.rpartition(".w_1.")[0]
        gated = f"{layer}.w_3.weight" in model
        name = name.replace(".w_1.", ".gate." if gated else ".inner.").replace(".w_3.", ".inner.")
        weights[name] = tensor.squeeze(1) if name.endswith(".pe.pe") else tensor
    if (bias := weights.pop(f"{_GENERATOR}bias", None)) is not None:
        weights["output_bias"] = bias
    return weights


def complete_biases(weights: dict[str, Tensor], maps: Collection[str], path: Path) -> None:
    """Linear maps of these names have a bias in all places or in none: one that is left out is zero.

    Raises:
        BadInputError: Some layers have one where others have none.
    """
    found = [name.removesuffix(".weight") for name in weights if name.endswith((*(f"{each}.weight" for each in maps),))]
    biased = {name for name in found if f"{name}.bias" in weights}
    places = {re.sub(r"\d+", "", name) for name in biased}
    for name in found if biased else ():
        if name not in biased and re.sub(r"\d+", "", name) in places:
            raise BadInputError(f"{path}: {name}.bias is missing among the weights: the file is damaged, or not whole")
        weights.setdefault(f"{name}.bias", torch.zeros(shape_of(weights, f"{name}.weight", path)[0]))


def _settings(weights: dict[str, Tensor], options: Options, path: Path) -> dict[str, Any]:
    d_ff, d_model = shape_of(weights, "decoder.transformer_layers.0.feed_forward.inner.weight", path)
    activation, kind = options.choice("pos_ffn_activation_fn", _ACTIVATIONS, "relu")
    tables = [f"{side}.embeddings.make_embedding.pe.pe" for side in ("encoder", "decoder")]
    vectors = weights.get("encoder.transformer.0.self_attn.relative_positions_embeddings.weight")
    positions = take_positions(weights, tables, d_model)
    if vectors is not None:
        if positions["positions"] != "none":
            raise options.refuse(
                "position_encoding",
                "positions beside relative ones (max_relative_positions): no model of ours has both",
            )
        positions = {"positions": "relative", "max_relative_distance": (len(vectors) - 1) // 2}
    return {
        "encoder_layers": count_layers(weights, "encoder.transformer."),
        "decoder_layers": count_layers(weights, "decoder.transformer_layers."),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": options.size("heads", 8),
        "attention_bias": "decoder.transformer_layers.0.self_attn.linear_query.bias" in weights,
        "feed_forward": kind,
        "feed_forward_bias": "decoder.transformer_layers.0.feed_forward.inner.bias" in weights,
        "activation": activation,
        "norm": "pre",
        "norm_epsilon": options.number("norm_eps", _EPSILON, least=0),
        # The factor comes with the table of positions.
        "scale_embedding": positions["positions"] == "sinusoidal",
        "source_end": False,
        **{name: options.rate(name, 0.0) for name in ("dropout", "attention_dropout", "label_smoothing")},
        **positions,
    }
