"""Models of Marian (Junczys-Dowmunt et al. 2018): an ``.npz`` that holds the configuration too, and vocabularies.

Its weights are named by their place, ``encoder_l1_self_Wq``; a matrix maps from its first axis to its second.
"""

import ast
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place, check_size
from transduce.config.model import Activation
from transduce.interop.filling import Names, convert, count_layers, shape_of
from transduce.interop.marian_vocabulary import read_marian_sides
from transduce.interop.position_tables import sinusoidal
from transduce.interop.yaml_files import read_yaml, read_yaml_file

CONFIG: Final = "special:model.yml"
_MOST_BYTES: Final = 2**42
_MOST_CONFIG: Final = 2**20
_MOST_HEADER: Final = 10_000
_ACTIVATIONS: Final[dict[str, Activation]] = {"relu": "relu", "swish": "silu"}
_EPSILON: Final = 1e-6
_BEAM: Final = 12  # its own, where nothing is said
# Options that change what is computed, with the values that ours can follow.
_SAYABLE: Final[dict[str, tuple[Any, ...]]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (2, 0),
    "transformer-no-projection": (False,),
    "transformer-no-affine": (False,),
    "transformer-tied-layers": ([],),
    "transformer-pool": (False,),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "lemma-dependency": ("",),
    "input-types": ([],),
}
# Its vectors of positions are trained: the newer and the older name. Embeddings have no factor then.
_TRAINED_POSITIONS: Final = ("transformer-train-position-embeddings", "transformer-train-positions")


def _names(letters: Mapping[str, str], place: str) -> dict[str, str]:
    return {ours: f"{place}|{letter}" for ours, letter in letters.items()}


_ATTENTION: Final = {"query": "q", "key": "k", "value": "v", "output": "o"}
_PARTS: Final = {
    **{f"self_attention.{ours}": f"_self|{letter}" for ours, letter in _ATTENTION.items()},
    "self_attention_residual.norm": "_self_Wo_ln",
    "feed_forward.inner": "_ffn|1",
    "feed_forward.outer": "_ffn|2",
    "feed_forward_residual.norm": "_ffn_ffn_ln",
}


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


def read_marian(model: Path, vocabularies: tuple[Path, Path] | None = None, codes: Path | None = None) -> Bundle:
    """The transformer in an ``.npz`` of Marian.

    Its vocabularies are ``vocabularies``, or those that the ``.decoder.yml`` beside it names, or ``vocab.spm`` or
    ``vocab.yml`` in its folder. A ``.spm`` cuts text itself; symbols of a ``.yml`` are words, or are made by the merges
    of ``codes`` or of a file of BPE codes in the folder.

    Its decoder begins with a vector of zeros, as our begin symbol's row is then. Of pre-norm models, this is what it
    trains and scores; its own search reads keys and values without their norm from the second symbol on.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
        TransduceError: PyYAML is not installed.
    """
    stored = read_npz(model)
    if CONFIG not in stored:
        raise BadInputError(f"{model}: no model of Marian: it lacks {CONFIG}")
    content = stored.pop(CONFIG).tobytes()
    options = read_yaml(content[:_MOST_CONFIG].split(b"\0")[0].decode("utf-8", "replace"), f"{model}: {CONFIG}")
    _refuse_unsayable(options, model)
    search = _read_search(model)
    sides = read_marian_sides(_find_vocabularies(model, search) if vocabularies is None else vocabularies, codes)
    weights = _straighten(stored, model)
    shared, tied = "Wemb" in stored, not any(name.startswith("decoder_ff_logit_out_W") for name in stored)
    values = _settings(weights, options, model) | {"tied_projection": tied, "output_bias": "output_bias" in weights}
    converted = convert(weights, NAMES, values, sides, model, shared=shared)
    penalty = {"length_penalty": float(search.get("normalize") or 0.0), "length_penalty_kind": "marian"}
    generation = GenerationConfig().changed({"beam_size": search.get("beam-size", _BEAM), **penalty})
    return Bundle(converted, sides.tokenizers, generation)


def _read_search(model: Path) -> dict[str, Any]:
    """The settings of its decoder, in a file beside the model; not every model has one."""
    for name in (f"{model.name}.decoder.yml", "decoder.yml"):
        path = model.with_name(name)
        if path.exists():
            return read_yaml_file(path)
    return {}


def _find_vocabularies(model: Path, search: Mapping[str, Any]) -> tuple[Path, Path]:
    """Those that the decoder's settings name, by their file names in the model's folder, or ``vocab``."""
    named = search.get("vocabs")
    names = [Path(str(each)).name for each in named] if isinstance(named, list) else []
    names = names or [name for name in ("vocab.spm", "vocab.yml") if model.with_name(name).is_file()][:1] * 2
    if len(names) != 2:
        raise BadInputError(f"{model}: no vocabularies beside it (vocab.spm, vocab.yml): name them, source and target")
    paths = (model.with_name(names[0]), model.with_name(names[1]))
    for path in paths:
        check_place(path)
    return paths


def read_npz(path: Path) -> dict[str, "np.ndarray[Any, Any]"]:
    """The arrays of an ``.npz``, by name. None is a pickle, and none is larger than what is stored of it.

    Raises:
        BadInputError: It is missing, damaged, or asks for more than it holds.
    """
    check_size(path, _MOST_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise BadInputError(f"{path}: damaged, or compressed, which Marian's models are not")
            return {entry.filename.removesuffix(".npy"): _read_array(archive, entry, path) for entry in entries}
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such model") from error
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise BadInputError(f"{path}: no .npz, or a damaged one: {error}") from error


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> "np.ndarray[Any, Any]":
    content = archive.read(entry)
    try:
        return _parse_array(content)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise BadInputError(f"{path}: {entry.filename} is damaged, or no array of numbers: {error}") from error


def _parse_array(content: bytes) -> "np.ndarray[Any, Any]":
    """By hand, as NumPy takes the memory that a header asks for before it sees what there is.

    Raises:
        ValueError: It is damaged.
    """
    # Magic bytes, a version, the header's length.
    start = 10 if content[6:7] == b"\x01" else 12
    length = int.from_bytes(content[8:start], "little")
    header = ast.literal_eval(content[start : start + min(length, _MOST_HEADER)].decode("latin-1"))
    kind = np.dtype(header["descr"])
    if content[:6] != npy.MAGIC_PREFIX or kind.hasobject or kind.names:
        raise ValueError("no array of numbers")
    array = np.frombuffer(content[start + length :], kind)
    return array.reshape(tuple(header["shape"]), order="F" if header["fortran_order"] else "C")


def _refuse_unsayable(options: Mapping[str, Any], path: Path) -> None:
    for name, values in _SAYABLE.items():
        if name in options and options[name] not in values:
            raise BadInputError(f"{path}: {name} = {options[name]!r}: no model of ours has it")
    if options.get("transformer-ffn-activation", "relu") not in _ACTIVATIONS:
        activation = options["transformer-ffn-activation"]
        raise BadInputError(
            f"{path}: transformer-ffn-activation = {activation!r}: ours has relu and swish, and another gelu"
        )
    if options.get("transformer-decoder-dim-ffn") not in (None, 0, options.get("transformer-dim-ffn")):
        raise BadInputError(f"{path}: transformer-decoder-dim-ffn is another one than the encoder's: ours has one")
    _norms(options, path)


def _norms(options: Mapping[str, Any], path: Path) -> tuple[str, bool]:
    """Where norms stand: ``post`` or ``pre``, and whether one is behind each stack. Dropout has no part in it."""
    before, after, top = (
        str(options.get(f"transformer-{each}") or "").replace("d", "")
        for each in ("preprocess", "postprocess", "postprocess-top")
    )
    if (before, after) not in (("", "an"), ("n", "a")) or top not in ("", "n"):
        raise BadInputError(
            f"{path}: transformer-preprocess = {before!r}, -postprocess = {after!r}, -postprocess-top = {top!r}: ours "
            f"has norms behind sums (postprocess 'an') or in front of sub-layers (preprocess 'n', postprocess 'a')"
        )
    return ("pre" if before else "post"), top == "n"


def _straighten(stored: Mapping[str, "np.ndarray[Any, Any]"], path: Path) -> dict[str, Tensor]:
    """The weights as ours lie: maps transposed, vectors without an axis of one."""
    weights: dict[str, Tensor] = {}
    for name, array in stored.items():
        if array.dtype.kind != "f":
            raise BadInputError(
                f"{path}: {name} is of {array.dtype}: only models of floating-point numbers can be read"
            )
        tensor = torch.from_numpy(array.astype(np.float32))
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


def _settings(weights: Mapping[str, Tensor], options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    d_ff, d_model = shape_of(weights, "decoder_l1_ffn_W1", path)
    norm, final = _norms(options, path)
    trained = any(options.get(name) for name in _TRAINED_POSITIONS)
    positions = sinusoidal("concatenated", "closed")
    if trained:
        longest, _ = shape_of(weights, "decoder_Wpos", path)
        positions = {"positions": "learned", "max_positions": longest}
    return {
        "encoder_layers": count_layers(weights, "encoder_l", "_"),
        "decoder_layers": count_layers(weights, "decoder_l", "_"),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": options.get("transformer-heads"),
        "attention_bias": "decoder_l1_self_bq" in weights,
        "activation": _ACTIVATIONS[options.get("transformer-ffn-activation", "relu")],
        "norm": norm,
        "final_norm": final,
        "norm_epsilon": _EPSILON,
        "embedding_norm": "n" in str(options.get("transformer-postprocess-emb") or ""),
        "scale_embedding": not trained,
        "dropout": float(options.get("transformer-dropout") or 0.0),
        "attention_dropout": float(options.get("transformer-dropout-attention") or 0.0),
        "activation_dropout": float(options.get("transformer-dropout-ffn") or 0.0),
        "label_smoothing": float(options.get("label-smoothing") or 0.0),
        **positions,
    }
