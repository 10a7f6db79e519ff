"""Folders of ``transformers``' MarianMTModel, OPUS-MT's among them, as models of ours.

Its layers are the paper's, post-norm, with biases; all sines stand before all cosines, and the decoder begins with the
padding symbol. Each side has a SentencePiece model, and a ``vocab.json`` gives the pieces of both their ids.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from transduce.bundle import Bundle, read_tensors
from transduce.config import BadInputError
from transduce.config.files import check_place
from transduce.config.model import Activation
from transduce.interop.checkpoints import check_numbers, load_checkpoint, tensors_of
from transduce.interop.filling import Names, convert, shape_of
from transduce.interop.json_files import read_json
from transduce.interop.marianmt_generation import GENERATION, forbidden_symbols, read_generation
from transduce.interop.marianmt_vocabulary import read_sides
from transduce.interop.options import Options, same
from transduce.interop.renumbering import NEVER
from transduce.interop.vocabularies import Sides
from transduce.layers.sinusoids import sinusoids

CONFIG: Final = "config.json"
WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
# What its layers call ours.
_PARTS: Final = {
    "self_attention.query": ".self_attn.q_proj",
    "self_attention.key": ".self_attn.k_proj",
    "self_attention.value": ".self_attn.v_proj",
    "self_attention.output": ".self_attn.out_proj",
    "self_attention_residual.norm": ".self_attn_layer_norm",
    "feed_forward.inner": ".fc1",
    "feed_forward.outer": ".fc2",
    "feed_forward_residual.norm": ".final_layer_norm",
}
_CROSS: Final = {
    "cross_attention.query": ".encoder_attn.q_proj",
    "cross_attention.key": ".encoder_attn.k_proj",
    "cross_attention.value": ".encoder_attn.v_proj",
    "cross_attention.output": ".encoder_attn.out_proj",
    "cross_attention_residual.norm": ".encoder_attn_layer_norm",
}
SHARED: Final = "model.shared"
SOURCE: Final = "model.encoder.embed_tokens"
TARGET: Final = "model.decoder.embed_tokens"
SCORES: Final = "lm_head"
BIAS: Final = "final_logits_bias"
NAMES: Final = Names(
    encoder="model.encoder.layers.{}",
    decoder="model.decoder.layers.{}",
    in_encoder=_PARTS,
    in_decoder=_PARTS | _CROSS,
    whole={"embedding": TARGET, "source_embedding": SOURCE, "projection": SCORES},
)
EPSILON: Final = 1e-5  # of its norms
ACTIVATIONS: Final[dict[str, Activation]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
# Older versions could be told so; what they made of it no version reads today.
_UNREAD: Final = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
# Rows of stored sinusoids that are compared with ours; float16 has three digits.
_COMPARED: Final = 64
_NEAR: Final = 2e-3


def read_marianmt(folder: Path) -> Bundle:
    """The model of a folder: configuration, weights, vocabulary, both SentencePiece models and how it writes.

    Symbols that it must not write (``bad_words_ids``) have a bias that no logit makes up for. Text is cut as
    MarianTokenizer cuts it; sacremoses' punctuation rules, which it names and does not apply, are left out too.

    Raises:
        BadInputError: A file is missing, damaged or a link out of the folder, or the model is one that ours cannot say,
            which is named.
        TransduceError: The extra for SentencePiece models is not installed.
    """
    place = folder / CONFIG
    options = Options.of(read_json(place), place)
    _check_kind(options)
    path, weights = _read_weights(folder)
    sides = read_sides(folder, options)
    _check_ids(folder, options, sides)
    values = _settings(options)
    tied, shared = _choose_matrices(weights, options, one=sides.source is sides.target)
    generation, bad_words = read_generation(folder, options)
    bias = _forbid(_bias(weights, path), forbidden_symbols(bad_words, sides.target), place)
    values |= {"tied_projection": tied, "output_bias": bool(bias.any()), "attention_bias": _drop_empty(weights)}
    weights |= {"output_bias": bias} if values["output_bias"] else {}
    model = convert(weights, NAMES, values, sides, path, shared=shared)
    return Bundle(model, sides.tokenizers, generation)


def find_weights(folder: Path) -> Path:
    """The file of its weights.

    Raises:
        BadInputError: There is none.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).exists()), None)
    if path is None:
        raise BadInputError(f"{folder}: neither {' nor '.join(WEIGHTS)}: the weights are missing")
    return path


def _check_kind(options: Options) -> None:
    if options.given("model_type") != "marian":
        raise options.refuse("model_type", "only 'marian' can be read")
    for name, usual in _UNREAD.items():
        if options.flag(name, usual) != usual:
            raise options.refuse(
                name,
                "a model of an older transformers, whose present version takes it for another: it cannot be read",
            )


def _check_ids(folder: Path, options: Options, sides: Sides) -> None:
    """Refuse ids of special symbols, and a size, that are others than its vocabulary has; lists of ids are let be.

    Raises:
        BadInputError: One differs.
    """
    pad, begin, end, _ = sides.target.rows[:4]
    expected = {"eos_token_id": end, "decoder_vocab_size": sides.target.size}
    expected |= {"pad_token_id": pad} if pad >= 0 else {}
    _compare(options, expected)
    place = folder / GENERATION
    if place.exists():
        _compare(Options.of(read_json(place), place), {"eos_token_id": end, "decoder_start_token_id": begin})


def _compare(options: Options, expected: Mapping[str, int]) -> None:
    for name, number in expected.items():
        value = options.given(name)
        if value is not None and not isinstance(value, list) and options.integer(name) != number:
            raise options.refuse(name, f"this model's is {number:,}: the files are of two models, or damaged")


def _read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file of weights and what is in it, without what is no weight."""
    path = find_weights(folder)
    check_place(path)
    weights = read_tensors(path) if path.suffix == ".safetensors" else tensors_of(load_checkpoint(path), path)
    check_numbers(weights, path)
    for side in ("encoder", "decoder"):
        table = weights.pop(f"model.{side}.embed_positions.weight", None)
        if table is not None:
            _check_sinusoids(table, path)
    return path, weights


def _check_sinusoids(table: Tensor, path: Path) -> None:
    """Positions that were trained would be lost: ours are computed."""
    rows = table[:_COMPARED].float() if table.dim() == 2 and table.shape[1] % 2 == 0 else None
    if rows is not None:
        ours = sinusoids(torch.arange(len(rows)), rows.shape[1], "concatenated", "open")
        if bool(((rows - ours).abs() < _NEAR).all()):
            return
    raise BadInputError(f"{path}: its positions are no sinusoids: no MarianMTModel, or a damaged one")


def _settings(options: Options) -> dict[str, Any]:
    """Our settings, without what follows from vocabularies and matrices."""
    of_both = {
        ours: same(options.place, {name: options.size(name) for name in (f"encoder_{theirs}", f"decoder_{theirs}")})
        for ours, theirs in (("d_ff", "ffn_dim"), ("heads", "attention_heads"))
    }
    rates = ("dropout", "attention_dropout", "activation_dropout")
    return {
        **{name: options.size(name) for name in ("encoder_layers", "decoder_layers", "d_model")},
        **of_both,
        "activation": options.choice("activation_function", ACTIVATIONS, "gelu"),
        "scale_embedding": options.flag("scale_embedding", default=False),
        "norm_epsilon": EPSILON,
        "sinusoid_layout": "concatenated",
        **{name: options.rate(name, 0.0) for name in rates},
    }


def _choose_matrices(weights: dict[str, Tensor], options: Options, *, one: bool) -> tuple[bool, bool]:
    """Leave each matrix once; whether outputs are scored by the embeddings, and whether both sides have one matrix.

    What is tied is stored under any of its names, or under several; ``one`` says that the sides share a vocabulary.
    """
    shared, source, target, scores = (weights.pop(f"{name}.weight", None) for name in (SHARED, SOURCE, TARGET, SCORES))
    if options.flag("tie_word_embeddings", default=True):
        if options.flag("share_encoder_decoder_embeddings", default=True):
            source = target = next((each for each in (shared, target, source, scores) if each is not None), None)
        else:
            target = scores if target is None else target
        scores = None
    else:
        source, target = (shared if each is None else each for each in (source, target))
        if scores is None:
            raise BadInputError(
                f"{options.place}: tie_word_embeddings = false, and {SCORES}.weight is not among the weights"
            )
    tied = scores is None or _equal(scores, target)
    both = one and _equal(source, target)
    kept = {TARGET: target, SOURCE: None if both else source, SCORES: None if tied else scores}
    weights.update({f"{name}.weight": each for name, each in kept.items() if each is not None})
    return tied, both


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    return one.shape == other.shape and torch.equal(one, other)


def _bias(weights: dict[str, Tensor], path: Path) -> Tensor:
    """The bias of its logits, which may be left out."""
    bias = weights.pop(BIAS, None)
    rows = shape_of(weights, f"{TARGET}.weight", path)[0]
    if bias is None:
        return torch.zeros(rows)
    if bias.numel() != rows:
        raise BadInputError(f"{path}: {BIAS} has shape {tuple(bias.shape)} where the vocabulary has {rows:,} symbols")
    return bias.flatten().float()


def _drop_empty(weights: dict[str, Tensor]) -> bool:
    """Whether the attention's maps have biases: where all are zero, they are left out."""
    biases = [name for name in weights if "_attn." in name and name.endswith("_proj.bias")]
    if any(bool(weights[name].any()) for name in biases):
        return True
    for name in biases:
        del weights[name]
    return not biases


def _forbid(bias: Tensor, forbidden: list[int], place: Path) -> Tensor:
    if any(not 0 <= index < len(bias) for index in forbidden):
        raise BadInputError(f"{place}: bad_words_ids names a symbol outside the vocabulary")
    bias = bias.clone()
    bias[forbidden] += NEVER
    return bias
