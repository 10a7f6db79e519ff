"""A model as Marian's ``.npz``, with a vocabulary of each side."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig, TransformerConfig
from transduce.config.disk import flush_folder
from transduce.config.model import Activation
from transduce.interop.marian_options import CONFIG, EPSILON
from transduce.interop.marian_state import MarianState, begins_with_zeros, marian_state
from transduce.interop.marian_vocabulary import number_symbols, write_marian_sides
from transduce.interop.marian_weights import NAMES
from transduce.interop.marianmt_generation import warn_of_left_out
from transduce.interop.renumbering import Renumbering
from transduce.layers.positions import LearnedPositions
from transduce.models import Transformer

_log = logging.getLogger(__name__)

_ACTIVATIONS: Final[dict[Activation, str]] = {"relu": "relu", "silu": "swish", "gelu": "gelu"}
# Fields of ours that Marian knows these values of alone, and what the others mean.
_SAYABLE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "activation": (tuple(_ACTIVATIONS), "another activation"),
    "attention_window": ((None,), "local self-attention"),
    "compatibility": (("scaled_dot_product",), "scores of another kind"),
    "decoder_self_attention": (("multi_head",), "average attention as ours is"),
    "feed_forward": (("mlp",), "another feed-forward sub-layer"),
    "norm_epsilon": ((EPSILON,), "another epsilon"),
    "position_combination": (("add",), "positions beside embeddings"),
    "positions": (("sinusoidal", "learned", "none"), "relative positions"),
    "positions_at_every_layer": ((False,), "positions that come in at every layer"),
    "residual": ((True,), "a stack without residual connections"),
    "source_end": ((True,), "sources without an end symbol"),
}
_RANGE: Final = "wavelengths of another range: train with sinusoid_range = 'closed'"
# A logit with such a bias is as good as never the highest.
_FORBIDDEN: Final = -50.0
# Settings of a search that its decoder's has not, or has as options of the command alone.
_LEFT_OUT: Final = (
    *("stopping", "coverage_penalty", "diversity", "max_length", "min_length", "no_repeat_ngram", "replace_unknown"),
    "sampling",
)
_VERSION: Final = "v1.12.42"  # what is written is what this one computes


def export_marian(bundle: Bundle, folder: Path) -> None:
    """Write ``model.npz``, vocabularies and the decoder's settings to an empty folder.

    What came from Marian comes back bit for bit. Of other models, see ``marian_state``: the same function, where Marian
    says it otherwise.

    Raises:
        BadInputError: Marian has no such model; why not is said.
    """
    model = bundle.model
    if not isinstance(model, Transformer):
        raise BadInputError(
            f"Marian's format is not written for architecture {bundle.config.architecture!r}: only our own engine runs "
            f"it"
        )
    _check(model)
    whole = _writes_all(model)
    names = write_marian_sides(bundle.tokenizers, folder, whole=whole)
    numbers = [
        number_symbols(each.vocab_size, whole=whole) for each in (bundle.tokenizers.source, bundle.tokenizers.target)
    ]
    state = marian_state(model)
    arrays: dict[str, Any] = {name: each.numpy() for name, each in _arrays(model.config, state, *numbers).items()}
    options = _options(model.config, state, [each.size for each in numbers])
    settings = "".join(f"{name}: {_yaml(value)}\n" for name, value in options.items())
    arrays[CONFIG] = np.frombuffer(settings.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays)
    warn_of_left_out(bundle.generation, _LEFT_OUT, "Marian's")
    decoder = "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n" + "".join(f"  - {name}\n" for name in names)
    decoder += f"beam-size: {bundle.generation.beam_size}\nnormalize: {_penalty(bundle.generation)}\n"
    (folder / "model.npz.decoder.yml").write_text(decoder, encoding="utf-8")
    flush_folder(folder)


def _check(model: Transformer) -> None:
    config = model.config
    unsayable = [
        f"{name} = {getattr(config, name)!r} ({meaning})"
        for name, (values, meaning) in _SAYABLE.items()
        if getattr(config, name) not in values
    ]
    if config.positions == "sinusoidal":
        if config.sinusoid_range != "closed":
            unsayable.append(f"sinusoid_range = {config.sinusoid_range!r} ({_RANGE})")
        if config.sinusoid_start:
            unsayable.append(f"sinusoid_start = {config.sinusoid_start} (positions that begin elsewhere)")
    if not config.d_k == config.d_v == config.d_model // config.heads:
        unsayable.append(f"d_k = {config.d_k}, d_v = {config.d_v} (other widths than d_model / heads)")
    if not begins_with_zeros(model):
        also = "and a begin symbol that has an embedding, where Marian's decoder begins with zeros"
        if config.norm == "pre":
            unsayable.append(f"norm = 'pre' ({also})")
        if config.embedding_norm:
            unsayable.append(f"embedding_norm = True ({also})")
    if unsayable:
        raise BadInputError(
            f"Marian cannot express {' nor '.join(unsayable)}: --to ctranslate2 and --to onnx say more models"
        )
    tables = [each.table for each in (model.encoder_positions, model.decoder_positions)]
    learned = [each.weight for each in tables if isinstance(each, LearnedPositions)]
    if learned and not torch.equal(learned[0], learned[1]):
        raise BadInputError("Marian has one table of positions, and this model one for each of its sides")


def _writes_all(model: Transformer) -> bool:
    """Whether padding and begin symbol have their share of the softmax, and so their place in Marian's vocabulary.

    In models that came from Marian they have none.
    """
    bias = model.output_bias
    matrices = [each.weight for each in (model.embedding, model.source_embedding, model.projection) if each is not None]
    return bias is None or bool((bias[:2] > _FORBIDDEN).any()) or any(bool(each[:2].any()) for each in matrices)


def _arrays(
    config: TransformerConfig, state: MarianState, source: Renumbering, target: Renumbering
) -> dict[str, Tensor]:
    """The weights as Marian names and lays them: maps from the first axis to the second, vectors as rows."""
    arrays = dict[str, Tensor]()
    pre = "_pre" if config.norm == "pre" else ""
    for ours, tensor in state.weights.items():
        name = NAMES.find(ours)
        match name:
            case "output_bias":
                arrays["decoder_ff_logit_out_b"] = target.restore(tensor).unsqueeze(0)
            case "encoder_Wpos" | "decoder_Wpos":
                arrays["Wpos"] = tensor
            case "encoder_Wemb":
                arrays[name] = source.restore(tensor)
            case "decoder_Wemb":
                arrays["Wemb" if state.shared else name] = target.restore(tensor)
            case "decoder_ff_logit_out_Wt":
                arrays[name] = target.restore(tensor)
            case _ if "_ln_" in name:
                ending = "" if "_top_" in name else "_pre" if "_emb_" in name else pre
                arrays[name + ending] = tensor.unsqueeze(0)
            case _:
                arrays[name] = tensor.T if tensor.dim() == 2 else tensor.unsqueeze(0)
    return {name: tensor.float().contiguous() for name, tensor in arrays.items()}


def _options(config: TransformerConfig, state: MarianState, sizes: list[int]) -> Mapping[str, object]:
    """What Marian builds the model by."""
    pre = config.norm == "pre"
    return {
        "type": "transformer",
        "dim-emb": config.d_model,
        "dim-vocabs": sizes,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 0,
        "transformer-ffn-activation": _ACTIVATIONS[config.activation],
        "transformer-preprocess": "n" if pre else "",
        "transformer-postprocess": "da" if pre else "dan",
        "transformer-postprocess-emb": "nd" if config.embedding_norm else "d",
        "transformer-postprocess-top": "n" if config.final_norm else "",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-no-projection": False,
        # Trained ones as versions until 1.11 call them: later ones say that they cannot, and compute nothing else.
        **({"transformer-train-positions": True} if config.positions == "learned" else {}),
        "transformer-train-position-embeddings": False,
        "transformer-disable-position-embeddings": config.positions == "none",
        "transformer-tied-layers": [],
        "transformer-guided-alignment-layer": "last",
        "transformer-dropout": config.dropout,
        "transformer-dropout-attention": config.attention_dropout,
        "transformer-dropout-ffn": config.activation_dropout,
        "label-smoothing": config.label_smoothing,
        "tied-embeddings": state.tied and not state.shared,
        "tied-embeddings-src": state.shared and not state.tied,
        "tied-embeddings-all": state.shared and state.tied,
        "output-omit-bias": "output_bias" not in state.weights,
        "right-left": False,
        "skip": False,
        "layer-normalization": False,
        "input-types": [],
        "ulr": False,
        "lemma-dim-emb": 0,
        "version": _VERSION,
    }


def _penalty(ours: GenerationConfig) -> float:
    """What a score is divided by the length to the power of. GNMT's it has not, and the nearest has the same alpha."""
    if ours.length_penalty_kind == "gnmt" and ours.length_penalty:
        _log.warning("length_penalty_kind = 'gnmt': the folder says 'marian', which Marian's search has")
    return 0.0 if ours.length_penalty_kind == "none" else ours.length_penalty


def _yaml(value: object) -> str:
    """JSON is YAML."""
    return json.dumps(value)
