"""A model as Marian's ``.npz``, with a vocabulary of each side in YAML."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, TransformerConfig
from transduce.config.disk import flush_folder
from transduce.config.model import Activation
from transduce.interop.marian_npz import CONFIG, NAMES
from transduce.interop.renumbering import Renumbering
from transduce.layers.positions import LearnedPositions
from transduce.models import Transformer
from transduce.text import Tokenizer
from transduce.text.subword_nmt import spell
from transduce.text.tokenizer import END, UNKNOWN

_ACTIVATIONS: Final[dict[Activation, str]] = {"relu": "relu", "silu": "swish"}
# Fields of ours that Marian knows these values of alone, and what the others mean.
_SAYABLE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "activation": (("relu", "silu"), "another activation"),
    "attention_bias": ((True,), "attention without biases"),
    "attention_window": ((None,), "local self-attention"),
    "compatibility": (("scaled_dot_product",), "scores of another kind"),
    "decoder_self_attention": (("multi_head",), "average attention as ours is"),
    "feed_forward": (("mlp",), "another feed-forward sub-layer"),
    "feed_forward_bias": ((True,), "feed-forward networks without biases"),
    "norm_epsilon": ((1e-6,), "another epsilon"),
    "position_combination": (("add",), "positions beside embeddings"),
    "positions": (("sinusoidal", "learned"), "relative positions, or none"),
    "positions_at_every_layer": ((False,), "positions that come in at every layer"),
    "residual": ((True,), "a stack without residual connections"),
    "source_end": ((True,), "sources without an end symbol"),
}
_SINUSOIDS: Final = {"sinusoid_layout": "concatenated", "sinusoid_range": "closed", "sinusoid_start": 0}
_ENDS: Final = "</w>"  # of subwords that end a word
# A logit with such a bias is as good as never the highest.
_FORBIDDEN: Final = -50.0


def export_marian(bundle: Bundle, folder: Path) -> None:
    """Write ``model.npz``, ``source.yml`` and ``target.yml`` to an empty folder, and the decoder's settings.

    Marian's decoder begins with zeros, and has neither a begin nor a padding symbol: such models of ours are those that
    came from it, trained on or not, as long as no begin symbol has been learned. They come back bit for bit.

    Raises:
        BadInputError: Marian has no such model; why not is said.
    """
    model = bundle.model
    if not isinstance(model, Transformer):
        raise BadInputError(f"Marian's format is not written for architecture {bundle.config.architecture!r}")
    _check(model)
    source, target = (_numbers(tokenizer) for tokenizer in (bundle.tokenizers.source, bundle.tokenizers.target))
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in _arrays(model, source, target).items()}
    options = _options(model.config, source.size, target.size)
    settings = "".join(f"{name}: {_yaml(value)}\n" for name, value in options.items())
    arrays[CONFIG] = np.frombuffer(settings.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays)
    for side, tokenizer in (("source", bundle.tokenizers.source), ("target", bundle.tokenizers.target)):
        stored = [*tokenizer.vocabulary][4:]
        ends = any(name.endswith(_ENDS) for name in stored)
        names = [END, UNKNOWN, *(spell(name, ends=ends) for name in stored)]
        lines = "".join(f"{_quote(name)}: {index}\n" for index, name in enumerate(names))
        (folder / f"{side}.yml").write_text(lines, encoding="utf-8")
    penalty = bundle.generation.length_penalty if bundle.generation.length_penalty_kind == "marian" else 0.0
    decoder = "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n  - source.yml\n  - target.yml\n"
    decoder += f"beam-size: {bundle.generation.beam_size}\nnormalize: {penalty}\n"
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
        unsayable += [
            f"{name} = {getattr(config, name)!r} (another kind of sinusoids)"
            for name, value in _SINUSOIDS.items()
            if getattr(config, name) != value
        ]
    if config.scale_embedding != (config.positions == "sinusoidal"):
        unsayable.append(f"scale_embedding = {config.scale_embedding} with {config.positions} positions")
    if not config.d_k == config.d_v == config.d_model // config.heads:
        unsayable.append(f"d_k = {config.d_k}, d_v = {config.d_v} (other widths than d_model / heads)")
    if unsayable:
        raise BadInputError(f"Marian cannot express {' nor '.join(unsayable)}")
    tables = [each.table for each in (model.encoder_positions, model.decoder_positions)]
    learned = [each.weight for each in tables if isinstance(each, LearnedPositions)]
    if learned and not torch.equal(learned[0], learned[1]):
        raise BadInputError("Marian has one table of positions, and this model one for each of its sides")
    matrices = [each.weight for each in (model.embedding, model.source_embedding) if each is not None]
    bias = model.output_bias
    if any(bool(matrix[:2].any()) for matrix in matrices) or bias is None or bool((bias[:2] > _FORBIDDEN).any()):
        raise BadInputError(
            "Marian's decoder begins with zeros, and this model's with a begin symbol that has an embedding: only "
            "models that came from Marian go back"
        )


def _numbers(tokenizer: Tokenizer) -> Renumbering:
    """Marian's ids: the end symbol, the unknown one, and the others in our order."""
    return Renumbering.of(tokenizer.vocab_size - 2, pad=None, begin=None, end=0, unknown=1)


def _arrays(model: Transformer, source: Renumbering, target: Renumbering) -> dict[str, Tensor]:
    """The weights as Marian names and lays them: maps from the first axis to the second, vectors as rows."""
    config, arrays = model.config, dict[str, Tensor]()
    pre = "_pre" if config.norm == "pre" else ""
    for ours, tensor in model.state_dict().items():
        name = NAMES.find(ours)
        match name:
            case "output_bias":
                arrays["decoder_ff_logit_out_b"] = target.restore(tensor).unsqueeze(0)
            case "encoder_Wpos" | "decoder_Wpos":
                arrays["Wpos"] = tensor
            case "encoder_Wemb":
                arrays[name] = source.restore(tensor)
            case "decoder_Wemb":
                arrays["Wemb" if config.source_vocab_size is None else name] = target.restore(tensor)
            case "decoder_ff_logit_out_Wt":
                arrays[name] = target.restore(tensor)
            case _ if "_ln_" in name:
                ending = "" if "_top_" in name else "_pre" if "_emb_" in name else pre
                arrays[name + ending] = tensor.unsqueeze(0)
            case _:
                arrays[name] = tensor.T if tensor.dim() == 2 else tensor.unsqueeze(0)
    return {name: tensor.detach().float().contiguous() for name, tensor in arrays.items()}


def _options(config: TransformerConfig, sources: int, targets: int) -> Mapping[str, object]:
    """What Marian builds the model by."""
    pre, shared = config.norm == "pre", config.source_vocab_size is None
    return {
        "type": "transformer",
        "dim-emb": config.d_model,
        "dim-vocabs": [sources, targets],
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
        "transformer-train-position-embeddings": config.positions == "learned",
        "transformer-tied-layers": [],
        "transformer-guided-alignment-layer": "last",
        "transformer-dropout": config.dropout,
        "transformer-dropout-attention": config.attention_dropout,
        "transformer-dropout-ffn": config.activation_dropout,
        "label-smoothing": config.label_smoothing,
        "tied-embeddings": config.tied_projection,
        "tied-embeddings-src": shared and not config.tied_projection,
        "tied-embeddings-all": shared and config.tied_projection,
        "right-left": False,
        "skip": False,
        "layer-normalization": False,
        "input-types": [],
        "ulr": False,
        "lemma-dim-emb": 0,
        "version": "v1.12.0",
    }


def _yaml(value: object) -> str:
    """JSON is YAML."""
    return json.dumps(value)


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
