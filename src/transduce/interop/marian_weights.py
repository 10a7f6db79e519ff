"""Marian's weights as ours lie: by names of their place, ``encoder_l1_self_Wq``, maps transposed, nothing left out."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import BadInputError
from transduce.interop.filling import Names, count_layers, shape_of
from transduce.interop.marian_options import has_old_gelu
from transduce.interop.options import Options

_ATTENTION: Final = {"query": "q", "key": "k", "value": "v", "output": "o"}
_PARTS: Final = {
    **{f"self_attention.{ours}": f"_self|{letter}" for ours, letter in _ATTENTION.items()},
    "self_attention_residual.norm": "_self_Wo_ln",
    "feed_forward.inner": "_ffn|1",
    "feed_forward.outer": "_ffn|2",
    "feed_forward_residual.norm": "_ffn_ffn_ln",
}
_GELU_SLOPE: Final = 1.702
_TIED: Final = "transformer-tied-layers"


def _tensor_name(module: str, kind: str) -> str:
    """``encoder_l1_self|q`` has ``encoder_l1_self_Wq`` and ``_bq``; a norm has its scale and its bias."""
    if module.endswith("_ln"):
        return f"{module}_{'scale' if kind == 'weight' else 'bias'}"
    if module.endswith(("Wemb", "Wpos", "_Wt")):
        return module
    place, _, letter = module.rpartition("|")
    return f"{place}_{'W' if kind == 'weight' else 'b'}{letter}"


NAMES: Final = Names(
    encoder="encoder_l{}",
    decoder="decoder_l{}",
    first=1,
    in_encoder=_PARTS,
    in_decoder={
        **_PARTS,
        **{f"cross_attention.{ours}": f"_context|{letter}" for ours, letter in _ATTENTION.items()},
        "cross_attention_residual.norm": "_context_Wo_ln",
    },
    whole={
        "embedding": "decoder_Wemb",
        "source_embedding": "encoder_Wemb",
        "projection": "decoder_ff_logit_out_Wt",
        "encoder_positions.table": "encoder_Wpos",
        "decoder_positions.table": "decoder_Wpos",
        "encoder_positions.norm": "encoder_emb_ln",
        "decoder_positions.norm": "decoder_emb_ln",
        "encoder_norm": "encoder_top_ln",
        "decoder_norm": "decoder_top_ln",
    },
    tensor=_tensor_name,
)


def as_tensors(stored: Mapping[str, "np.ndarray[Any, Any]"], path: Path) -> dict[str, Tensor]:
    """The arrays in float32.

    Raises:
        BadInputError: They are no floating-point numbers.
    """
    for name, array in stored.items():
        if array.dtype.kind != "f":
            raise BadInputError(
                f"{path}: {name} is of {array.dtype}: only models of floating-point numbers can be read"
            )
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in stored.items()}


def straighten(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Maps transposed, vectors without an axis of one, what both sides have in common under the names of each."""
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name == "Wemb":
            weights["decoder_Wemb"] = tensor
        elif name == "Wpos":
            weights |= {"encoder_Wpos": tensor, "decoder_Wpos": tensor}
        elif name == "decoder_ff_logit_out_W":
            weights["decoder_ff_logit_out_Wt"] = tensor.T
        elif name == "decoder_ff_logit_out_b":
            weights["output_bias"] = tensor.flatten()
        elif re.fullmatch(r".*_(?:b\w|ln_(?:scale|bias)(?:_pre)?)", name):
            weights[name.removesuffix("_pre")] = tensor.flatten()
        else:
            weights[name] = tensor.T if re.fullmatch(r".*_W[qkvo12]", name) else tensor
    return weights


def complete(weights: dict[str, Tensor], options: Options, path: Path) -> dict[str, Tensor]:
    """The weights of a plain Transformer that computes the same, where Marian leaves some out or has them smaller.

    Raises:
        BadInputError: A setting is of the wrong type, or a weight is missing.
    """
    weights = _untie_layers(weights, options)
    if options.flag("transformer-no-projection", default=False):
        _add_projections(weights, path)
    _widen_networks(weights, path)
    if has_old_gelu(options):
        _turn_gelu_to_swish(weights)
    return weights


def _untie_layers(weights: dict[str, Tensor], options: Options) -> dict[str, Tensor]:
    """Each layer of the decoder gets the weights of the layer that it is said to be."""
    layers = options.given(_TIED) or []
    if not isinstance(layers, list) or any(type(each) is not int or not 0 < each <= len(layers) for each in layers):
        raise options.refuse(_TIED, "a number of a layer for each layer of the decoder belongs here")
    if not layers:
        return weights
    of_layers = re.compile(r"decoder_l(\d+)(_.*)")
    untied = {name: each for name, each in weights.items() if not of_layers.fullmatch(name)}
    for name, tensor in weights.items():
        found = of_layers.fullmatch(name)
        places = [place for place, layer in enumerate(layers, 1) if found is not None and layer == int(found[1])]
        untied |= {f"decoder_l{place}{found[2]}": tensor for place in places if found is not None}
    return untied


def _add_projections(weights: dict[str, Tensor], path: Path) -> None:
    """The heads' outputs as they are: a map that changes nothing."""
    for name in [name for name in weights if name.endswith("_Wv")]:
        width, place = shape_of(weights, name, path)[0], name.removesuffix("_Wv")
        weights.setdefault(f"{place}_Wo", torch.eye(width))
        if f"{place}_bv" in weights:
            weights.setdefault(f"{place}_bo", torch.zeros(width))


def _widen_networks(weights: dict[str, Tensor], path: Path) -> None:
    """Units of zeros where one side's networks are narrower: every activation makes zero of zero."""
    sides = [(side, number) for side in ("encoder", "decoder") for number in _numbers(weights, side)]
    widths = {(side, number): shape_of(weights, f"{side}_l{number}_ffn_W1", path)[0] for side, number in sides}
    for (side, number), width in widths.items():
        missing, place = max(widths.values()) - width, f"{side}_l{number}_ffn"
        for name, pad in (("W1", (0, 0, 0, missing)), ("b1", (0, missing)), ("W2", (0, missing))):
            if missing and f"{place}_{name}" in weights:
                weights[f"{place}_{name}"] = F.pad(weights[f"{place}_{name}"], pad)


def _numbers(weights: Mapping[str, Tensor], side: str) -> range:
    return range(1, count_layers(weights, f"{side}_l", "_") + 1)


def _turn_gelu_to_swish(weights: dict[str, Tensor]) -> None:
    """W gelu(V x + b) = (W / 1.702) swish(1.702 (V x + b))."""
    for name, tensor in weights.items():
        if name.endswith(("_ffn_W1", "_ffn_b1")):
            weights[name] = tensor * _GELU_SLOPE
        elif name.endswith("_ffn_W2"):
            weights[name] = tensor / _GELU_SLOPE
