"""Models of eole, OpenNMT-py's successor: a folder of ``config.json``, ``vocab.json`` and ``model.00.safetensors``."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor

from transduce.bundle import Bundle, read_tensors
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place
from transduce.config.model import MOST_WIDE, Activation, FeedForwardKind, SinusoidLayout, SinusoidRange
from transduce.interop.checkpoints import check_numbers
from transduce.interop.eole_transforms import read_cuts
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.json_files import read_json
from transduce.interop.opennmt import ATTENTION, complete_biases
from transduce.interop.options import Options, same
from transduce.interop.position_tables import cut_tables, drop_sinusoids
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, index_of
from transduce.text.tokenizer import BEGIN, END, UNKNOWN

T = TypeVar("T")
CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.[0-9][0-9].safetensors"
# Its special symbols where vocab.json does not call them otherwise.
_SPECIAL: Final = {"pad_token": "<blank>", "eos_token": END, "unk_token": UNKNOWN}
_ACTIVATIONS: Final[dict[str, tuple[Activation, FeedForwardKind]]] = {
    "relu": ("relu", "mlp"),
    "gelu": ("gelu", "mlp"),
    "gelu-tanh": ("gelu_tanh", "mlp"),
    "silu": ("silu", "mlp"),
    "gated-gelu": ("gelu", "gated"),
    "gated-gelu-tanh": ("gelu_tanh", "gated"),
    "gated-silu": ("silu", "gated"),
}
_ARCHITECTURES: Final = {name: name for name in ("transformer", "custom")}
# Options that change what is computed, with the values that ours can follow.
_OF_LAYERS: Final[dict[str, tuple[Any, ...]]] = {
    "layer_norm": ("standard", "standardFP32"),
    "encoder_layer_style": ("standard",),
    "final_encoder_layer_norm": (True,),
    "ffn_layernorm": (False,),
    "parallel_residual": (False,),
    "query_norm": (False,),
    "key_norm": (False,),
    "value_norm": (False,),
    "q_gating": (False,),
    "relative_positions_buckets": (0,),
    "num_experts": (0,),
    "sliding_window": (0,),
    "LM_type": ("causal",),
}
_OF_MODELS: Final[dict[str, tuple[Any, ...]]] = {"generator_function": ("softmax",), "add_estimator": (False,)}
_SINUSOIDS: Final[dict[str, tuple[SinusoidLayout, SinusoidRange]]] = {
    "SinusoidalInterleaved": ("interleaved", "open"),
    "SinusoidalConcat": ("concatenated", "closed"),
}
_PENALTIES: Final = {"avg": "marian", "wu": "gnmt", "none": "none"}
_EPSILON: Final = 1e-5  # as version 0.6 reads a configuration that does not say it; the first ones had 1e-6
_SOURCE, _TARGET = "src_emb", "tgt_emb"
_MATRICES: Final = (f"{_SOURCE}.embeddings.weight", f"{_TARGET}.embeddings.weight")
_VECTORS: Final = ".self_attn.relative_positions_embeddings"


def _names(*, gated: bool) -> Names:
    """What it calls our parts: of a gated network, what is activated is ``gate_up_proj``, and else the only map."""
    parts = {
        **{f"self_attention.{ours}": f".self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "self_attention.relative": _VECTORS,
        "self_attention_residual.norm": ".input_layernorm",
        "feed_forward.inner": ".mlp.up_proj" if gated else ".mlp.gate_up_proj",
        "feed_forward.gate": ".mlp.gate_up_proj",
        "feed_forward.outer": ".mlp.down_proj",
        "feed_forward_residual.norm": ".post_attention_layernorm",
    }
    return Names(
        encoder="encoder.transformer_layers.{}",
        decoder="decoder.transformer_layers.{}",
        in_encoder=parts,
        in_decoder={
            **parts,
            **{f"cross_attention.{ours}": f".context_attn.{theirs}" for ours, theirs in ATTENTION.items()},
            "cross_attention_residual.norm": ".precontext_layernorm",
        },
        whole={
            "embedding": f"{_TARGET}.embeddings",
            "source_embedding": f"{_SOURCE}.embeddings",
            "projection": "generator",
            "encoder_positions.table": f"{_SOURCE}.pe",
            "decoder_positions.table": f"{_TARGET}.pe",
            "encoder_norm": "encoder.layer_norm",
            "decoder_norm": "decoder.layer_norm",
        },
    )


def read_eole(folder: Path, codes: Path | None = None) -> Bundle:
    """The model of a folder.

    Text is cut by ``codes``, or by the files in the folder that its transforms name; else at spaces. Its encoder does
    not read an end symbol.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
    """
    stored = load_eole(folder, codes)
    config, path, sides, weights = stored.options, stored.path, stored.sides, dict(stored.weights)
    model = config.section("model")
    layers = _refuse_unsayable(config, model)
    _undo_sharing(weights, model, path)
    values = _settings(weights, config, model, layers, path)
    tied = drop_equal(weights, "generator.weight", _MATRICES[1])
    shared = sides.tokenizers.shared and drop_equal(weights, *_MATRICES)
    values |= {"tied_projection": tied, "output_bias": "output_bias" in weights}
    names = _names(gated=values["feed_forward"] == "gated")
    converted = convert(weights, names, values, sides, path, shared=shared)
    return Bundle(converted, sides.tokenizers, _search(config))


def load_eole(folder: Path, codes: Path | None = None) -> Stored:
    """What the files of a folder hold.

    Raises:
        BadInputError: As ``read_eole`` says.
    """
    config = Options.of(read_json(folder / CONFIG), folder / CONFIG)
    _refuse_unsayable(config, config.section("model"))  # of another model, vocabularies are no such
    paths, weights = _read_weights(folder)
    return Stored(paths, config, weights, _read_sides(folder, read_cuts(config, folder, codes)))


def _refuse_unsayable(config: Options, model: Options) -> tuple[Options, Options]:
    """The settings of the encoder's and the decoder's layers; what these lack stands in the model's."""
    optional = model.choice("architecture", _ARCHITECTURES, "custom") == "transformer"
    layers = tuple(model.section(side, optional=optional, around=True) for side in ("encoder", "decoder"))
    for side, section in zip(("encoder", "decoder"), layers, strict=True):
        section.choice(f"{side}_type", {"transformer": True}, "transformer" if optional else "rnn")
        section.check(_OF_LAYERS)
        section.check_unset(["layer_types"])
    model.check(_OF_MODELS)
    model.section("embeddings", optional=True).check({"embedding_type": ("standard",)})
    config.section("training", optional=True).check_unset(["quant_type"])
    return layers[0], layers[1]


def _read_weights(folder: Path) -> tuple[tuple[Path, ...], dict[str, Tensor]]:
    """The files of weights, and what is in all of them."""
    paths = tuple(sorted(folder.glob(_WEIGHTS)))
    if not paths:
        raise BadInputError(f"{folder}: model.00.safetensors is missing: the folder has no weights")
    weights: dict[str, Tensor] = {}
    for path in paths:
        check_place(path)
        stored = read_tensors(path)
        check_numbers(stored, path)
        weights |= stored
    if adapters := [name for name in weights if ".lora_" in name]:
        raise BadInputError(f"{paths[0]}: {adapters[0]} among the weights: adapters (LoRA) have to be merged first")
    # One that every decoder layer has, and only decoders without an encoder use.
    return paths, {name: each for name, each in weights.items() if not name.endswith(".layer_scalar")}


def _undo_sharing(weights: dict[str, Tensor], model: Options, path: Path) -> None:
    """Put a matrix in both of its places where only one is stored; a bias of the logits under our name."""
    source, target = _MATRICES
    shape_of(weights, source, path)
    if model.flag("share_embeddings", default=False):
        weights.setdefault(target, weights[source])
    shape_of(weights, target, path)
    if not model.flag("share_decoder_embeddings", default=False):
        shape_of(weights, "generator.weight", path)
    if model.flag("generator_bias", default=True):
        shape_of(weights, "generator.bias", path, axes=1)
        weights["output_bias"] = weights.pop("generator.bias")


def _settings(
    weights: dict[str, Tensor], config: Options, model: Options, layers: tuple[Options, Options], path: Path
) -> dict[str, Any]:
    encoder, decoder = layers
    stored = shape_of(weights, "decoder.transformer_layers.0.mlp.gate_up_proj.weight", path)

    def both(name: str, read: Callable[[Options], T]) -> T:
        return same(model.place, {each.key(name): read(each) for each in layers})

    d_ff = both("transformer_ff", lambda side: _size(side, "transformer_ff", stored[0]))
    d_model = both("hidden_size", lambda side: _size(side, "hidden_size", stored[1]))
    heads = both("heads", lambda side: side.size("heads", 8))
    width = both("head_dim", lambda side: side.integer("head_dim", 0, least=0, most=MOST_WIDE))
    activation, kind = both("mlp_activation_fn", lambda side: side.choice("mlp_activation_fn", _ACTIVATIONS, "relu"))
    d_k = width or d_model // heads
    for side in layers:
        side.check({"heads_kv": (heads,), "attn_scaling": (d_k,)})
    complete_biases(weights, [f".{theirs}" for theirs in ATTENTION.values()], path)
    complete_biases(weights, [".gate_up_proj", ".up_proj", ".down_proj"], path)
    training = config.section("training", optional=True)
    return {
        "encoder_layers": _size(encoder, "layers", count_layers(weights, "encoder.transformer_layers.")),
        "decoder_layers": _size(decoder, "layers", count_layers(weights, "decoder.transformer_layers.")),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": heads,
        "d_k": width,
        "d_v": width,
        "attention_bias": "decoder.transformer_layers.0.self_attn.linear_query.bias" in weights,
        "feed_forward": kind,
        "feed_forward_bias": "decoder.transformer_layers.0.mlp.down_proj.bias" in weights,
        "activation": activation,
        "norm": "pre",
        "norm_epsilon": both("norm_eps", lambda side: side.number("norm_eps", _EPSILON, least=0)),
        "source_end": False,
        "dropout": training.rate("dropout", 0.3),
        "attention_dropout": training.rate("attention_dropout", 0.1),
        "label_smoothing": training.rate("label_smoothing", 0.0),
        **_positions(weights, model, d_model, d_k, path),
    }


def _size(options: Options, name: str, stored: int) -> int:
    """A size that it says, or that the weights have; it says -1 for nothing."""
    return stored if options.given(name) == -1 else options.size(name, stored)


def _positions(weights: dict[str, Tensor], model: Options, d_model: int, width: int, path: Path) -> dict[str, Any]:
    """Our settings of its positions, whose tables stay where they are learned; and whether embeddings are scaled."""
    options = model.section("embeddings", optional=True, around=True)
    scaled = options.flag("normalize", default=False)
    # Null says that there are none.
    usual = None if "position_encoding_type" in options.names else "SinusoidalInterleaved"
    match options.given("position_encoding_type") or usual:
        case "SinusoidalInterleaved" | "SinusoidalConcat" as kind:
            tables = [f"{side}.pe.pe" for side in (_SOURCE, _TARGET)]
            weights |= {name: weights[name].squeeze(1) for name in tables if name in weights}
            sinusoids = drop_sinusoids(weights, tables, d_model, *_SINUSOIDS[kind], path)
            # The factor comes with the table of positions.
            return {"scale_embedding": True, **sinusoids}
        case "Learned":
            tables = [f"{side}.pe.weight" for side in (_SOURCE, _TARGET)]
            shift = options.integer("position_shift", 0, least=0)
            for name in tables:
                longest, _ = shape_of(weights, name, path)
                if shift >= longest:
                    raise options.refuse("position_shift", f"{name} has {longest:,} positions")
                # It scales the sums of both.
                weights[name] = weights[name][shift:].float() * (math.sqrt(d_model) if scaled else 1)
            return {"scale_embedding": scaled, **cut_tables(weights, tables)}
        case "Relative":
            _take_relative(weights, width)
            reach = options.size("n_positions")
            return {"scale_embedding": scaled, "positions": "relative", "max_relative_distance": reach}
        case None:
            return {"scale_embedding": scaled, "positions": "none"}
        case _:
            raise options.refuse("position_encoding_type", "no model of ours has such positions")


def _take_relative(weights: dict[str, Tensor], width: int) -> None:
    """The vectors of relative positions for keys and for values, where it has one table for both.

    It divides products of queries and keys by sqrt(d_k), and those of queries and these vectors not: ours both.
    """
    for name in [name for name in weights if name.endswith(f"{_VECTORS}.weight")]:
        vectors, place = weights.pop(name).float(), name.removesuffix(".weight")
        weights |= {f"{place}.keys": vectors * math.sqrt(width), f"{place}.values": vectors}


def _read_sides(folder: Path, cuts: tuple[Path | None, Path | None]) -> Sides:
    place = folder / "vocab.json"
    options = Options.of(read_json(place), place)
    special = options.section("specials", optional=True)
    called = {name: special.text(name, usual) for name, usual in _SPECIAL.items()}
    begin = options.text("decoder_start_token", BEGIN)
    sides = []
    for side in ("src", "tgt"):
        names = options.texts(side)
        if side == "tgt":
            index_of(names, begin, place)
        vocabulary = Vocabulary.of(
            names,
            pad=names.index(called["pad_token"]) if called["pad_token"] in names else None,
            begin=names.index(begin) if begin in names else None,
            end=index_of(names, called["eos_token"], place),
            unknown=index_of(names, called["unk_token"], place),
        )
        sides.append(vocabulary)
    if sides[0].end != sides[1].end:
        raise BadInputError(
            f"{place}: {called['eos_token']} has the id {sides[0].end} in src and {sides[1].end} in tgt: eole trains "
            f"outputs to end with the first and ends them with the second"
        )
    return Sides.of(sides[0], sides[1], cuts, (place, place))


def _search(config: Options) -> GenerationConfig:
    """How it searches: as its configuration says, or as it does without a word."""
    said = config.section("inference", optional=True)
    values = {
        "beam_size": said.size("beam_size", 5),
        "length_penalty": said.number("alpha", 1.0),
        "length_penalty_kind": said.choice("length_penalty", _PENALTIES, "avg"),
        "max_length": said.size("max_length", 250),
    }
    try:
        return GenerationConfig().changed(values)
    except BadInputError as error:
        raise BadInputError(f"{config.place}: inference: {error}") from error
