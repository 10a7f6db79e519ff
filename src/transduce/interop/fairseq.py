"""Models of fairseq (Ott et al. 2019): a checkpoint of its ``transformer``, dictionaries, and BPE codes."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.model import Activation
from transduce.interop.checkpoints import load_checkpoint, tensors_of
from transduce.interop.fairseq_options import ALLOWED, read_options
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.options import Options, same
from transduce.interop.position_tables import cut_tables, sinusoidal
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, read_lines

_ACTIVATIONS: Final[dict[str, Activation]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # the older name
    "swish": "silu",
}
# Options of its transformer that ours cannot follow; where they are set, the model is refused.
_UNSAYABLE: Final = (
    "adaptive_softmax_cutoff",
    "adaptive_input",
    "character_embeddings",
    "char_inputs",
    "cross_self_attention",
    "no_cross_attention",
    "base_layers",
    "encoder_recurrent_stacking",
    "decoder_recurrent_stacking",
    "use_factorized_embedding",
    "merge_src_tgt_embed",
    "lang_tok_replacing_bos_eos",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)
# What it calls the modules of a layer, by what we call them.
_ATTENTION: Final = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_FEED_FORWARD: Final = {
    "feed_forward.inner": ".fc1",
    "feed_forward.outer": ".fc2",
    "feed_forward_residual.norm": ".final_layer_norm",
}
_SELF: Final = {f"self_attention.{ours}": f".self_attn.{theirs}" for ours, theirs in _ATTENTION.items()}
_IN_ENCODER: Final = {**_SELF, "self_attention_residual.norm": ".self_attn_layer_norm", **_FEED_FORWARD}
_NAMES: Final = Names(
    encoder="encoder.layers.{}",
    decoder="decoder.layers.{}",
    in_encoder=_IN_ENCODER,
    in_decoder={
        **_IN_ENCODER,
        **{f"cross_attention.{ours}": f".encoder_attn.{theirs}" for ours, theirs in _ATTENTION.items()},
        "cross_attention_residual.norm": ".encoder_attn_layer_norm",
    },
    whole={
        "embedding": "decoder.embed_tokens",
        "source_embedding": "encoder.embed_tokens",
        "projection": "decoder.output_projection",
        "encoder_positions.table": "encoder.embed_positions",
        "decoder_positions.table": "decoder.embed_positions",
        "encoder_positions.norm": "encoder.layernorm_embedding",
        "decoder_positions.norm": "decoder.layernorm_embedding",
        "encoder_norm": "encoder.layer_norm",
        "decoder_norm": "decoder.layer_norm",
    },
)
_PAD, _END, _UNKNOWN = 1, 2, 3
_FIRST_POSITION: Final = _PAD + 1  # what is padded has position 1
_EPSILON: Final = 1e-5
# Where one of these is set, the output's matrix may not be stored beside the embeddings.
_SHARING: Final = ("share_decoder_input_output_embed", "share_all_embeddings")
_OF_ROWS: Final = (".in_proj_weight", ".in_proj_bias", ".embed_positions.weight")
_FIRST: Final = torch.ones(1)  # the version of weights that say none
T = TypeVar("T")


def read_fairseq(checkpoint: Path, codes: Path | None = None) -> Bundle:
    """The model of a checkpoint, with the dictionaries that lie beside it (``dict.SOURCE.txt``, ``dict.TARGET.txt``).

    Text is cut by the merges of ``codes``, or of the file of BPE codes beside the checkpoint; it comes with spaces
    around punctuation, as the model's training text did.

    Its decoder begins with the end symbol, so our begin symbol is a copy of it; its own begin symbol, which it never
    reads and could write, is a symbol without text.

    Raises:
        BadInputError: A file is missing or damaged, asks for a class that is no part of a model, or the model is one
            that ours cannot say, which is named.
    """
    stored = load_fairseq(checkpoint, codes)
    options, sides, weights = stored.options, stored.sides, _modernize(stored.weights, checkpoint)
    if not any(options.flag(name, default=False) for name in _SHARING):
        shape_of(weights, "decoder.output_projection.weight", checkpoint)
    tied = drop_equal(weights, "decoder.output_projection.weight", "decoder.embed_tokens.weight")
    shared = sides.tokenizers.shared and drop_equal(
        weights, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    )
    values = _settings(weights, options, checkpoint) | {"tied_projection": tied}
    model = convert(weights, _NAMES, values, sides, checkpoint, shared=shared)
    generation = GenerationConfig(
        beam_size=5, length_penalty=1.0, length_penalty_kind="marian", stopping="full_beam", max_length=200
    )
    return Bundle(model, sides.tokenizers, generation)


def load_fairseq(checkpoint: Path, codes: Path | None = None) -> Stored:
    """What a checkpoint and the files beside it hold.

    Raises:
        BadInputError: As ``read_fairseq`` says.
    """
    stored = load_checkpoint(checkpoint, ALLOWED)
    if not isinstance(stored, Mapping) or "model" not in stored:
        raise BadInputError(f"{checkpoint}: no checkpoint of fairseq: it has no 'model'")
    options = read_options(stored, checkpoint)
    _refuse_unsayable(options)
    weights = tensors_of(stored["model"], checkpoint)
    return Stored((checkpoint,), options, weights, _read_sides(options, checkpoint.parent, codes))


def _refuse_unsayable(options: Options) -> None:
    architecture = options.text("arch", options.text("_name", "transformer"))
    others = ("_lm", "unidirectional", "monotonic")  # the last two read the source as it comes
    if not architecture.startswith("transformer") or any(each in architecture for each in others):
        raise BadInputError(
            f"{options.place}: a model of fairseq's architecture {architecture!r}: only encoder-decoder transformers "
            f"that read all of the source can be read"
        )
    options.check_unset(_UNSAYABLE)


def _read_sides(options: Options, folder: Path, codes: Path | None) -> Sides:
    """The dictionaries of both languages."""
    codes = find_codes(folder) if codes is None else codes
    languages = [options.text(name) for name in ("source_lang", "target_lang")]
    for language in languages:
        if not re.fullmatch(r"[\w.-]+", language):
            raise BadInputError(f"{options.place}: {language[:80]!r} is no language, by which a dictionary is found")
    places = (folder / f"dict.{languages[0]}.txt", folder / f"dict.{languages[1]}.txt")
    return Sides.of(_read_dictionary(places[0]), _read_dictionary(places[1]), (codes, codes), places)


def _read_dictionary(path: Path) -> Vocabulary:
    """A symbol and its count on each line, behind the four that every dictionary begins with."""
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    for number, line in enumerate(read_lines(path), 1):
        symbol, _, count = line.rstrip().rpartition(" ")
        if not symbol or not count.lstrip("-").isdecimal():
            raise BadInputError(f"{path}:{number}: a symbol and its count belong here")
        names.append(symbol)
    return Vocabulary.of(names, pad=_PAD, begin=_END, end=_END, unknown=_UNKNOWN)


def _settings(weights: dict[str, Tensor], options: Options, path: Path) -> dict[str, Any]:
    """Our settings of it, without what follows from its vocabularies: sizes as its weights have them."""
    d_ff, d_model = shape_of(weights, "decoder.layers.0.fc1.weight", path)
    pre = _both(options, "normalize_before", lambda name: options.flag(name, default=False))
    rates = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing")
    return {
        "encoder_layers": count_layers(weights, "encoder.layers."),
        "decoder_layers": count_layers(weights, "decoder.layers."),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": _both(options, "attention_heads", options.size),
        "attention_bias": "decoder.layers.0.self_attn.q_proj.bias" in weights,
        "activation": options.choice("activation_fn", _ACTIVATIONS, "relu"),
        "norm": "pre" if pre else "post",
        "final_norm": "decoder.layer_norm.weight" in weights,
        "scale_embedding": not options.flag("no_scale_embedding", default=False),
        "norm_epsilon": _EPSILON,
        "embedding_norm": "decoder.layernorm_embedding.weight" in weights,
        **{name: options.rate(name, 0.0) for name in rates},
        **_positions(weights, options, path),
    }


def _both(options: Options, name: str, take: Callable[[str], T]) -> T:
    """An option that the encoder and the decoder have each."""
    return same(options.place, {options.key(each): take(each) for each in (f"encoder_{name}", f"decoder_{name}")})


def _positions(weights: dict[str, Tensor], options: Options, path: Path) -> dict[str, Any]:
    learned = _both(options, "learned_pos", lambda name: options.flag(name, default=False))
    if options.flag("no_token_positional_embeddings", default=False):
        return {"positions": "none"}
    if learned:
        tables = [f"{side}.embed_positions.weight" for side in ("decoder", "encoder")]
        for name in tables:
            shape_of(weights, name, path)
        return cut_tables(weights, tables)
    return sinusoidal("concatenated", "closed", _FIRST_POSITION)


def _modernize(weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights as its newest version names them, without what is no weight.

    Raises:
        BadInputError: One has no rows where these belong.
    """
    modern: dict[str, Tensor] = {}
    # The first versions had no norm behind a stack, whatever is stored.
    versions = {side: weights.get(f"{side}.version", _FIRST) for side in ("encoder", "decoder")}
    first = [side for side, version in versions.items() if not version.numel() or float(version.flatten()[0]) < 2]
    for stored, tensor in weights.items():
        if stored.endswith(_OF_ROWS) and not tensor.dim():
            raise BadInputError(f"{path}: {stored} has no axes where rows belong: damaged")
        name = re.sub(r"((?:encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)", _renamed_norm, stored)
        if name.endswith((".version", "._float_tensor", ".embed_positions.weights")):
            continue
        if name.startswith(tuple(f"{side}.layer_norm." for side in first)):
            continue
        if name.endswith((".in_proj_weight", ".in_proj_bias")):
            place, _, kind = name.rpartition(".in_proj_")
            parts = zip("qkv", tensor.chunk(3), strict=False)
            modern |= {f"{place}.{letter}_proj.{kind}": part for letter, part in parts}
        elif name.endswith(".embed_positions.weight"):
            modern[name] = tensor[_FIRST_POSITION:]
        else:
            modern["decoder.output_projection.weight" if name == "decoder.embed_out" else name] = tensor
    return modern


def _renamed_norm(found: re.Match[str]) -> str:
    layer, number = found.groups()
    names = ["self_attn_layer_norm", "final_layer_norm"]
    names[1:1] = ["encoder_attn_layer_norm"] if layer.startswith("decoder") else []
    return f"{layer}.{names[int(number)]}" if int(number) < len(names) else found.group()
