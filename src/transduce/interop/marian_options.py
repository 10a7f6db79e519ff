"""What the settings in a Marian model say, in the terms of our Transformer."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from transduce.config import BadInputError
from transduce.config.model import Activation
from transduce.interop.filling import count_layers, shape_of
from transduce.interop.options import Options
from transduce.interop.position_tables import sinusoidal
from transduce.interop.yaml_files import read_yaml

CONFIG: Final = "special:model.yml"
_MOST_CONFIG: Final = 2**20
# YAML's older rules, which Python's library follows, take 1e-05 for text, and Marian writes numbers so.
_EXPONENT: Final = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
EPSILON: Final = 1e-6  # of its norms
ACTIVATIONS: Final[dict[str, Activation]] = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_LAST_WITHOUT_GELU: Final = (1, 12, 0)
# Settings that change what is computed, with the values that ours can follow.
_SAYABLE: Final[dict[str, tuple[Any, ...]]] = {
    "transformer-attention-mask": ("default",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (2, 0),
    "transformer-pool": (False,),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "lemma-dependency": ("",),
    "input-types": ([], ["sequence", "sequence"]),
}
# Its vectors of positions are trained: what versions until 1.11 call it, and those since, which do not do it.
_TRAINED_POSITIONS: Final = ("transformer-train-positions", "transformer-train-position-embeddings")
_POSITIONS: Final = "Wpos"


def read_options(content: bytes, path: Path) -> Options:
    """The settings that a model holds.

    Raises:
        BadInputError: They are no settings in YAML.
        TransduceError: PyYAML is not installed.
    """
    place = f"{path}: {CONFIG}"
    read = read_yaml(content[:_MOST_CONFIG].split(b"\0")[0].decode("utf-8", "replace"), place)
    return Options.of(
        {
            name: float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
            for name, value in read.items()
        },
        place,
    )


def refuse_unsayable(options: Options) -> None:
    """Let pass what a Transformer of ours can say, as far as settings tell.

    Raises:
        BadInputError: The first setting that it cannot.
    """
    options.check(_SAYABLE)
    _activation(options)
    norms(options)


def norms(options: Options) -> tuple[str, bool]:
    """Where norms stand: ``post`` or ``pre``, and whether one is behind each stack. Dropout has no part in it.

    Raises:
        BadInputError: They stand elsewhere.
    """
    before, after, top = (
        options.text(f"transformer-{each}", "").replace("d", "")
        for each in ("preprocess", "postprocess", "postprocess-top")
    )
    if (before, after) not in (("", "an"), ("n", "a")) or top not in ("", "n"):
        raise BadInputError(
            f"{options.place}: transformer-preprocess = {before!r}, -postprocess = {after!r}, -postprocess-top = "
            f"{top!r}: ours has norms behind sums (postprocess 'an') or in front of sub-layers (preprocess 'n', "
            f"postprocess 'a')"
        )
    return ("pre" if before else "post"), top == "n"


def settings(weights: Mapping[str, Tensor], options: Options, path: Path) -> dict[str, Any]:
    """Our settings, without what follows from vocabularies and matrices; ``weights`` are straightened and complete.

    Raises:
        BadInputError: A setting is of the wrong type, or a weight is missing.
    """
    d_ff, d_model = shape_of(weights, "decoder_l1_ffn_W1", path)
    norm, final = norms(options)
    rates = {
        "dropout": "transformer-dropout",
        "attention_dropout": "transformer-dropout-attention",
        "activation_dropout": "transformer-dropout-ffn",
        "label_smoothing": "label-smoothing",
    }
    return {
        "encoder_layers": count_layers(weights, "encoder_l", "_"),
        "decoder_layers": count_layers(weights, "decoder_l", "_"),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": options.size("transformer-heads"),
        "attention_bias": "decoder_l1_self_bq" in weights,
        "feed_forward_bias": "decoder_l1_ffn_b1" in weights,
        "activation": "silu" if has_old_gelu(options) else _activation(options),
        "norm": norm,
        "final_norm": final,
        "norm_epsilon": EPSILON,
        "embedding_norm": "n" in options.text("transformer-postprocess-emb", ""),
        **{ours: options.rate(theirs, 0.0) for ours, theirs in rates.items()},
        **_positions(weights, options, path),
    }


def has_old_gelu(options: Options) -> bool:
    """Whether its GELU is x sigmoid(1.702 x), as versions until 1.12.0 had it: a swish of 1.702 x, divided by that."""
    found = _VERSION.match(options.text("version", ""))
    old = found is not None and tuple(map(int, found.groups())) <= _LAST_WITHOUT_GELU
    return old and _activation(options) == "gelu"


def trains_positions(options: Options) -> bool:
    """Whether its vectors of positions were to be trained; whether they were, the weights say."""
    return any(options.flag(name, default=False) for name in _TRAINED_POSITIONS)


def _activation(options: Options) -> Activation:
    return options.choice("transformer-ffn-activation", ACTIVATIONS, "relu")


def _positions(weights: Mapping[str, Tensor], options: Options, path: Path) -> dict[str, Any]:
    if options.flag("transformer-disable-position-embeddings", default=False):
        return {"positions": "none", "scale_embedding": False}
    # Version 1.12 takes the setting, and computes sinusoids all the same.
    if trains_positions(options) and f"decoder_{_POSITIONS}" in weights:
        longest, _ = shape_of(weights, f"decoder_{_POSITIONS}", path)
        return {"positions": "learned", "max_positions": longest, "scale_embedding": False}
    return {**sinusoidal("concatenated", "closed"), "scale_embedding": True}
