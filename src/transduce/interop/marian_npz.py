"""Models of Marian (Junczys-Dowmunt et al. 2018): an ``.npz`` that holds the configuration too, and vocabularies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, assert_never

from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place
from transduce.config.values import shorten
from transduce.interop.filling import convert
from transduce.interop.marian_options import CONFIG, read_options, refuse_unsayable, settings
from transduce.interop.marian_recurrent import read_recurrent
from transduce.interop.marian_vocabulary import read_marian_sides
from transduce.interop.marian_weights import NAMES, as_tensors, complete, straighten
from transduce.interop.npz import read_npz
from transduce.interop.options import Options
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides
from transduce.interop.yaml_files import read_yaml_file
from transduce.models import TrainableModel, Transformer

_ARCHITECTURES: Final[dict[str, Literal["transformer", "recurrent"]]] = {
    "transformer": "transformer",
    **dict.fromkeys(("s2s", "amun", "nematus"), "recurrent"),
}
_BEAM: Final = 12  # its own, where nothing is said
_BEGIN: Final = 1  # ours
_TYING: Final = ("tied-embeddings", "tied-embeddings-all")
_EMBEDDING, _SCORES = "decoder_Wemb", "decoder_ff_logit_out_Wt"


def read_marian(model: Path, vocabularies: tuple[Path, Path] | None = None, codes: Path | None = None) -> Bundle:
    """The transformer, or recurrent model, in an ``.npz`` of Marian.

    Its vocabularies are ``vocabularies``, or those that ``find_vocabularies`` finds. A ``.spm`` cuts text itself;
    symbols of a ``.yml`` are words, or are made by the merges of ``codes`` or of a file of BPE codes in the folder.

    Its decoder begins with a vector of zeros, as our begin symbol's row is then. Of pre-norm models, this is what it
    trains and scores; its own search reads keys and values without their norm from the second symbol on.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
        TransduceError: PyYAML is not installed.
    """
    stored = read_npz(model)
    if CONFIG not in stored:
        raise BadInputError(f"{model}: no model of Marian: it lacks {CONFIG}")
    options = read_options(stored.pop(CONFIG).tobytes(), model)
    architecture = options.choice("type", _ARCHITECTURES)
    search = read_search(model)
    sides = read_marian_sides(find_vocabularies(model, search) if vocabularies is None else vocabularies, codes)
    weights = as_tensors(stored, model)
    match architecture:
        case "transformer":
            converted: TrainableModel = _read_transformer(weights, options, sides, model)
        case "recurrent":
            converted = read_recurrent(weights, options, sides, model)
        case _:
            assert_never(architecture)
    return Bundle(converted, sides.tokenizers, _generation(search))


def _read_transformer(stored: Mapping[str, Tensor], options: Options, sides: Sides, model: Path) -> Transformer:
    refuse_unsayable(options)
    weights, shared = complete(straighten(stored), options, model), "Wemb" in stored
    if _SCORES not in weights and not any(options.flag(name, default=False) for name in _TYING):
        raise BadInputError(f"{model}: decoder_ff_logit_out_W is missing among the weights, and no option ties it")
    _begin_with_zeros(weights, sides.target)
    tied = _SCORES not in weights
    values = settings(weights, options, model) | {"tied_projection": tied, "output_bias": "output_bias" in weights}
    return convert(weights, NAMES, values, sides, model, shared=shared)


def _begin_with_zeros(weights: dict[str, Tensor], target: Renumbering) -> None:
    """Its decoder reads zeros first, whatever the begin symbol of a vocabulary that has one is embedded as.

    That symbol has its share of the softmax all the same, so that its row scores on.
    """
    row, embedding = target.rows[_BEGIN], weights.get(_EMBEDDING)
    if embedding is None or not 0 <= row < len(embedding) or not bool(embedding[row].any()):
        return
    weights.setdefault(_SCORES, embedding)
    weights[_EMBEDDING] = embedding.clone()
    weights[_EMBEDDING][row] = 0


def _generation(search: Options) -> GenerationConfig:
    values = {
        "beam_size": search.integer("beam-size", _BEAM),
        "length_penalty": search.number("normalize", 0.0),
        "length_penalty_kind": "marian",
    }
    try:
        return GenerationConfig().changed(values)
    except BadInputError as error:
        raise BadInputError(f"{search.place}: {error}") from error


def read_search(model: Path) -> Options:
    """The settings of its decoder, in a file beside the model; not every model has one."""
    for name in (f"{model.name}.decoder.yml", "decoder.yml"):
        path = model.with_name(name)
        if path.exists():
            return Options.of(read_yaml_file(path), path)
    return Options.of({}, model)


def find_vocabularies(model: Path, search: Options) -> tuple[Path, Path]:
    """Those that the decoder's settings name, by their file names in the model's folder, or ``vocab``.

    Raises:
        BadInputError: There are none, or one is a link out of the folder.
    """
    named = search.given("vocabs")
    names = [Path(str(each)).name for each in named] if isinstance(named, list) else []
    names = names or [name for name in ("vocab.spm", "vocab.yml") if model.with_name(name).is_file()][:1] * 2
    if len(names) != 2:
        raise BadInputError(f"{model}: no vocabularies beside it (vocab.spm, vocab.yml): name them, source and target")
    for name in names:
        if name in ("", "..") or "\0" in name:
            raise BadInputError(f"{search.place}: vocabs {shorten(named)}: {name!r} is no file's name")
    paths = (model.with_name(names[0]), model.with_name(names[1]))
    for path in paths:
        check_place(path)
    return paths
