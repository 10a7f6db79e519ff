"""Marian's recurrent models (``s2s``, ``amun``, ``nematus``) as ours: GRUs, and Nematus' conditional decoder.

A cell has its gates' maps of the state U and of the input W as matrices from the first axis to the second, r and z in
one, and those of the candidate, Ux and Wx, beside them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from transduce.config import BadInputError, RecurrentConfig
from transduce.config.recurrent import Directions
from transduce.interop.filling import fill, make_config, renumber, shape_of
from transduce.interop.options import Options
from transduce.interop.vocabularies import Sides
from transduce.models import TrainableModel

_CELLS: Final = ("gru", "gru-nematus")  # the same, but for norms
_SAYABLE: Final[dict[str, tuple[Any, ...]]] = {
    "enc-cell": _CELLS,
    "dec-cell": _CELLS,
    "enc-cell-depth": (1,),
    "dec-cell-base-depth": (2,),
    "dec-cell-high-depth": (1,),
    "dec-attention-hops": (1,),
    "dec-attention-heads": (1,),
    "layer-normalization": (False,),
    "skip": (False,),
    "right-left": (False,),
    "lemma-dim-emb": (0,),
    "input-types": ([], ["sequence", "sequence"]),
}
_STACKS: Final[dict[str, Directions]] = {"bi-unidirectional": "first", "alternating": "interleaved"}
# What amun's files, as Nematus', call what s2s' do otherwise.
_RENAMED: Final = (
    (r"decoder_(U|Ux|W|Wx|b|bx)", r"decoder_cell1_\1"),
    (r"decoder_(U|Ux|b|bx)_nl", r"decoder_cell2_\1"),
    (r"decoder_Wc(x?)", r"decoder_cell2_W\1"),
    (r"encoder_(r_)?(U|Ux|W|Wx|b|bx)", r"encoder_bi_\1\2"),
    (r"ff_logit_prev_(W|b)", r"decoder_ff_logit_l1_\g<1>0"),
    (r"ff_logit_lstm_(W|b)", r"decoder_ff_logit_l1_\g<1>1"),
    (r"ff_logit_ctx_(W|b)", r"decoder_ff_logit_l1_\g<1>2"),
    (r"ff_logit_(W|b)", r"decoder_ff_logit_l2_\1"),
    (r"ff_state_(W|b)", r"decoder_ff_state_\1"),
    (r"Wemb_dec", "decoder_Wemb"),
)
_LEFT_OUT: Final = ("decoder_c_tt", "uidx", "history_errs")  # no weights
_BEGIN: Final = 1  # ours
_EMBEDDING, _SOURCE, _SCORES, _BIAS = "embedding.weight", "source_embedding.weight", "projection.weight", "output_bias"


def read_recurrent(stored: Mapping[str, Tensor], options: Options, sides: Sides, path: Path) -> TrainableModel:
    """The model of weights as they are stored.

    Embeddings have no factor there, and have one here that their rows are divided by: so the matrix that scores the
    output is one of its own.

    Raises:
        BadInputError: The model is one that ours cannot say, which is named, or weights are missing.
    """
    options.check(_SAYABLE)
    theirs = _Weights(_rename(stored, options), path)
    encoder, decoder = options.size("enc-depth"), options.size("dec-depth")
    directions: Directions = "all" if encoder == 1 else options.choice("enc-type", _STACKS)
    ours = dict(_cells(theirs, encoder, decoder, directions))
    ours |= _rest(theirs, decoder)
    ours |= _matrices(theirs)
    if theirs.left:
        raise BadInputError(f"{path}: {min(theirs.left)} among the weights: a part that no model of ours has")
    values = _settings(ours, encoder, decoder, directions, path) | sides.sizes(shared=_SOURCE not in ours)
    if "label-smoothing" in options.names:
        values["label_smoothing"] = options.rate("label-smoothing")
    config = make_config(values, path, RecurrentConfig)
    numbered = renumber(ours, sides.source, sides.target, path)
    # Its decoder reads zeros first, whatever a begin symbol of its vocabulary is embedded as.
    numbered[_EMBEDDING][_BEGIN] = 0
    return fill(config.model_copy(update={"output_bias": _BIAS in numbered}), numbered, path)


@final
class _Weights:
    """Weights by name, each taken once; vectors are rows."""

    def __init__(self, weights: Mapping[str, Tensor], path: Path) -> None:
        self._weights, self._path = weights, path
        self.left = {*weights}

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def take(self, *names: str, axis: int = 1) -> Tensor:
        """A matrix, or several beside each other (below, along the axis 0).

        Raises:
            BadInputError: One is missing, or no matrix, or they do not go together.
        """
        found = []
        for name in names:
            shape_of(self._weights, name, self._path)
            self.left.discard(name)
            found.append(self._weights[name])
        if len({each.shape[1 - axis] for each in found}) > 1:
            raise BadInputError(f"{self._path}: {' and '.join(names)} do not go together: damaged")
        return torch.cat(found, dim=axis)


def _rename(stored: Mapping[str, Tensor], options: Options) -> dict[str, Tensor]:
    """Weights as s2s names them, vectors as rows."""
    tied = options.flag("tied-embeddings-src", default=False) or options.flag("tied-embeddings-all", default=False)
    amun = options.text("type") != "s2s"
    renamed = {}
    for name, tensor in stored.items():
        if name in _LEFT_OUT:
            continue
        new = "encoder_Wemb" if name == "Wemb" and amun and not tied else name
        for pattern, replacement in _RENAMED if amun else ():
            if found := re.fullmatch(pattern, name):
                new = found.expand(replacement)
                break
        renamed[new] = tensor.unsqueeze(0) if tensor.dim() == 1 else tensor
    return renamed


def _cells(weights: _Weights, encoder: int, decoder: int, directions: Directions) -> Iterator[tuple[str, Tensor]]:
    """Those of all layers, under our names."""
    above = [f"_l{number}_cell1" for number in range(2, encoder + 1)]
    if directions == "interleaved":
        for stack, place in enumerate(("encoder_bi", "encoder_bi_r")):
            for number, behind in enumerate(["", *above]):
                yield from _cell(weights, place + behind, f"encoder.{stack}.{number}.directions.0")
    else:
        yield from _cell(weights, "encoder_bi", "encoder.0.0.directions.0")
        yield from _cell(weights, "encoder_bi_r", "encoder.0.0.directions.1")
        for number, behind in enumerate(above, 1):
            yield from _cell(weights, "encoder" + behind, f"encoder.0.{number}.directions.0")
    yield from _cell(weights, "decoder_cell1", "decoder.layers.0.directions.0")
    yield from _cell(weights, "decoder_cell2", "decoder.second", last=True)
    for number in range(2, decoder + 1):
        yield from _cell(weights, f"decoder_l{number}_cell1", f"decoder.layers.{number - 1}.directions.0")


def _cell(weights: _Weights, theirs: str, ours: str, *, last: bool = False) -> Iterator[tuple[str, Tensor]]:
    """A GRU: h' = (1 - z) n + z h with n = tanh(W x + b + r U h), or n = tanh(W x + r (U h + b)) of the step's last."""
    of_gates, of_candidate = (weights.take(f"{theirs}_{name}").flatten() for name in ("b", "bx"))
    biases = [(of_gates, of_candidate), (torch.zeros_like(of_gates), torch.zeros_like(of_candidate))]
    of_input, of_state = biases if not last else [(of_gates, biases[1][1]), (biases[1][0], of_candidate)]
    yield f"{ours}.cells.weight_ih_l0", weights.take(f"{theirs}_W", f"{theirs}_Wx").T
    yield f"{ours}.cells.weight_hh_l0", weights.take(f"{theirs}_U", f"{theirs}_Ux").T
    yield f"{ours}.cells.bias_ih_l0", torch.cat(of_input)
    yield f"{ours}.cells.bias_hh_l0", torch.cat(of_state)


def _rest(weights: _Weights, decoder: int) -> dict[str, Tensor]:
    """Attention; where the decoder begins, all layers alike; the readout, ours of [s; c; y] and theirs of [y; s; c]."""
    score, readout = "decoder.attention.score", "decoder_ff_logit_l1"
    return {
        f"{score}.query.weight": weights.take("decoder_W_comb_att").T,
        f"{score}.value.weight": weights.take("decoder_Wc_att").T,
        f"{score}.value.bias": weights.take("decoder_b_att").flatten(),
        f"{score}.vector": weights.take("decoder_U_att").flatten(),
        "decoder.begin.weight": weights.take("decoder_ff_state_W").T.repeat(decoder, 1),
        "decoder.begin.bias": weights.take("decoder_ff_state_b").flatten().repeat(decoder),
        "decoder.readout.map.weight": weights.take(*(f"{readout}_W{number}" for number in (1, 2, 0)), axis=0).T,
        "decoder.readout.map.bias": weights.take(*(f"{readout}_b{number}" for number in (1, 2, 0)), axis=0).sum(dim=0),
    }


def _matrices(weights: _Weights) -> dict[str, Tensor]:
    """Embeddings, and what scores the output."""
    shared = "Wemb" in weights
    target = weights.take("Wemb" if shared else "decoder_Wemb")
    if "decoder_ff_logit_l2_Wt" in weights:
        scores = weights.take("decoder_ff_logit_l2_Wt")
    else:
        scores = weights.take("decoder_ff_logit_l2_W").T if "decoder_ff_logit_l2_W" in weights else target
    scale = math.sqrt(target.shape[1])
    found = {_EMBEDDING: target / scale, _SCORES: scores}
    if not shared:
        found[_SOURCE] = weights.take("encoder_Wemb") / scale
    if "decoder_ff_logit_l2_b" in weights:
        found[_BIAS] = weights.take("decoder_ff_logit_l2_b").flatten()
    return found


def _settings(
    ours: Mapping[str, Tensor], encoder: int, decoder: int, directions: Directions, path: Path
) -> dict[str, Any]:
    hidden = shape_of(ours, "decoder.second.cells.weight_hh_l0", path)[1]
    return {
        "cell": "gru",
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "directions": directions,
        "embedding_size": shape_of(ours, _EMBEDDING, path)[1],
        "hidden_size": hidden,
        "readout_size": shape_of(ours, "decoder.readout.map.weight", path)[0],
        "attention": "conditional",
        "attention_size": shape_of(ours, "decoder.attention.score.query.weight", path)[0],
        "decoder_start": "mean",
        "tied_projection": False,
        "output_bias": _BIAS in ours,
        "dropout": 0.0,  # it leaves the same units out at every position, as no model of ours does
    }
