"""Models of CTranslate2: a folder of ``model.bin``, ``config.json`` and vocabularies, ours or anyone's."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place
from transduce.config.model import Activation, Compatibility
from transduce.interop.ctranslate2_binary import KIND, WITH_SETTINGS, Binary, read_binary
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.json_files import read_json, read_json_value
from transduce.interop.options import Options, same
from transduce.interop.position_tables import sinusoidal, take_positions
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines
from transduce.text import TokenizerPair
from transduce.text.pair import SHARED, SIDES
from transduce.text.tokenizer import BEGIN

OUR_TOKENIZERS: Final = (SHARED, *SIDES)
_SIDES: Final = ("source", "target")
_ACTIVATIONS: Final[tuple[Activation | None, ...]] = ("relu", "gelu_tanh", "silu", "gelu", None, None, None)
_NO_BEGIN: Final = "sources with a begin symbol: no model of ours has it"
_NO_START: Final = "its callers choose what the decoder begins with: no model of ours has that"
_SYMBOLS: Final = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}  # as older layouts call them
_EPSILON: Final = 1e-5  # where its configuration names none
# Single numbers of a stack that are read, or that say nothing of what is computed; any other belongs to something that
# ours has not.
_READ: Final = ("num_heads", "pre_norm", "activation", "scale_embeddings", "start_from_zero_embedding", "queries_scale")
_IGNORED: Final = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "head_dim")
# Those of a whole model in layouts without settings: read there, or telling what the variables tell too.
_OF_MODELS: Final = (
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
    "user_decoder_start_tokens",
    "with_relative_position",
)
_ATTENTION: Final = ("query", "key", "value", "output")
_PARTS: Final = {
    **{f"self_attention.{part}": f"/self_attention/{part}" for part in _ATTENTION},
    "self_attention_residual.norm": "/self_attention/layer_norm",
    "feed_forward.inner": "/ffn/inner",
    "feed_forward.gate": "/ffn/gate",
    "feed_forward.outer": "/ffn/linear_1",
    "feed_forward_residual.norm": "/ffn/layer_norm",
    "self_attention.relative": "/self_attention/relative_position",
}


def _tensor_name(module: str, kind: str) -> str:
    if module.endswith(("layer_norm", "layernorm_embedding")):
        return f"{module}/{'gamma' if kind == 'weight' else 'beta'}"
    if module.endswith("relative_position"):
        return f"{module}_{kind}"
    return f"{module}/{'encodings' if module.endswith('position_encodings') else kind}"


_NAMES: Final = Names(
    encoder="encoder/layer_{}",
    decoder="decoder/layer_{}",
    in_encoder=_PARTS,
    in_decoder={
        **_PARTS,
        **{f"cross_attention.{part}": f"/attention/{part}" for part in _ATTENTION},
        "cross_attention_residual.norm": "/attention/layer_norm",
    },
    whole={
        "embedding": "decoder/embeddings",
        "source_embedding": "encoder/embeddings",
        "projection": "decoder/projection",
        "encoder_positions.table": "encoder/position_encodings",
        "decoder_positions.table": "decoder/position_encodings",
        "encoder_positions.norm": "encoder/layernorm_embedding",
        "decoder_positions.norm": "decoder/layernorm_embedding",
        "encoder_norm": "encoder/layer_norm",
        "decoder_norm": "decoder/layer_norm",
    },
    tensor=_tensor_name,
)

T = TypeVar("T")


def read_ctranslate2(folder: Path, codes: Path | None = None) -> Bundle:
    """The model of a directory of CTranslate2, in float32 whatever the number format that it is stored in.

    Text is cut by our own tokenizer files, where they are in the folder, as ``export_ctranslate2`` writes them; else by
    the merges of ``codes`` or of a file of BPE codes in the folder; else at spaces.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
    """
    path = folder / "model.bin"
    stored, settings = _read_stored(folder)
    numbers = Options.of(stored.numbers, path)
    sides, _ = _read_sides(folder, stored, settings, codes)
    weights = _split(dict(stored.variables), path)
    values = _settings(numbers, weights, settings, path)
    shape_of(weights, "decoder/projection/weight", path)
    tied = drop_equal(weights, "decoder/projection/weight", "decoder/embeddings/weight")
    shared = sides.tokenizers.shared and drop_equal(weights, "encoder/embeddings/weight", "decoder/embeddings/weight")
    if (bias := weights.pop("decoder/projection/bias", None)) is not None:
        weights["output_bias"] = bias
    values |= {"tied_projection": tied, "output_bias": bias is not None}
    model = convert(weights, _NAMES, values, sides, path, shared=shared)
    generation = GenerationConfig(length_penalty=1.0, length_penalty_kind="marian", stopping="full_beam")
    return Bundle(model, sides.tokenizers, generation)


def read_ctranslate2_sides(folder: Path, codes: Path | None = None) -> tuple[Sides, tuple[list[str], list[str]]]:
    """The vocabularies of a directory, and the symbols of source and target in its own order.

    Raises:
        BadInputError: As ``read_ctranslate2`` says.
    """
    return _read_sides(folder, *_read_stored(folder), codes)


def _read_stored(folder: Path) -> tuple[Binary, Options]:
    """Its file of weights, and its settings."""
    path = folder / "model.bin"
    stored = read_binary(path)
    if stored.kind != KIND:
        raise BadInputError(f"{path}: a model of kind {stored.kind}: only encoder-decoders, {KIND}, can be read")
    settings = _older_settings(folder, stored) if stored.layout < WITH_SETTINGS else _newer_settings(folder)
    if settings.flag("multi_query_attention", default=False):
        raise settings.refuse(
            "multi_query_attention", "attention with one key for several heads: no model of ours has it"
        )
    return stored, settings


def _newer_settings(folder: Path) -> Options:
    path = folder / "config.json"
    settings = Options.of(read_json(path), path)
    # Without any of these, its runtime does not open the model.
    for name in _SYMBOLS:
        settings.text(name)
    settings.flag("add_source_eos")
    if settings.flag("add_source_bos"):
        raise settings.refuse("add_source_bos", _NO_BEGIN)
    if settings.given("decoder_start_token") is None:
        raise settings.refuse("decoder_start_token", _NO_START)
    return settings


def _older_settings(folder: Path, stored: Binary) -> Options:
    """The settings of a layout that has them in ``model.bin``, which its runtime puts before those of a file."""
    numbers, path = Options.of(stored.numbers, folder / "model.bin"), folder / "config.json"
    for name, why in (("with_source_bos", _NO_BEGIN), ("user_decoder_start_tokens", _NO_START)):
        if numbers.flag(name, default=False):
            raise numbers.refuse(name, why)
    symbols = _SYMBOLS | stored.texts
    start = symbols["bos_token" if numbers.flag("with_target_bos", default=True) else "eos_token"]
    said = {"add_source_eos": numbers.flag("with_source_eos", default=False), "decoder_start_token": start}
    if not path.exists():
        return Options.of(symbols | said, numbers.place)
    # Of such a file, its runtime still reads the epsilon of norms.
    return Options.of(read_json(path) | symbols | said, path)


def _read_sides(
    folder: Path, stored: Binary, settings: Options, codes: Path | None
) -> tuple[Sides, tuple[list[str], list[str]]]:
    shared = _find_vocabulary(folder, "shared")
    places = [shared or _find_vocabulary(folder, side) or folder / f"{side}_vocabulary.json" for side in _SIDES]
    names = (_read_vocabulary(places[0]), _read_vocabulary(places[1]))
    if any((folder / name).exists() for name in OUR_TOKENIZERS):
        if codes is not None:
            raise BadInputError(f"--codes {codes}: the folder says itself how words are cut: leave it out")
        return _our_sides(folder, names, settings), names
    codes = find_codes(folder) if codes is None else codes
    # The decoder may begin with a vector of zeros, whatever symbol it is given.
    zero = Options.of(stored.numbers, folder / "model.bin").flag("decoder/start_from_zero_embedding", default=False)
    begin, end, unknown = (settings.text(name) for name in ("decoder_start_token", "eos_token", "unk_token"))
    source, target = (
        Vocabulary.of(
            each,
            pad=next((each.index(name) for name in ("<pad>", "<blank>") if name in each), None),
            begin=None if zero else index_of(each, begin, place),
            end=index_of(each, end, place),
            unknown=index_of(each, unknown, place),
        )
        for each, place in zip(names, places, strict=True)
    )
    return Sides.of(source, target, (codes, codes), (places[0], places[1])), names


def _find_vocabulary(folder: Path, side: str) -> Path | None:
    found = [folder / f"{side}_vocabulary.{kind}" for kind in ("json", "txt")]
    return next((path for path in found if path.is_file()), None)


def _read_vocabulary(path: Path) -> list[str]:
    names = read_lines(path) if path.suffix == ".txt" else read_json_value(path)
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise BadInputError(f"{path}: a list of symbols belongs here")
    return names


def _our_sides(folder: Path, names: Sequence[list[str]], settings: Options) -> Sides:
    """Our own tokenizers, which have the same symbols in the same order."""
    for name in OUR_TOKENIZERS:
        check_place(folder / name)
    tokenizers = TokenizerPair.load(folder)
    pair = (tokenizers.source, tokenizers.target)
    begin = settings.text("decoder_start_token", "")
    if begin != BEGIN or any([*side.vocabulary] != each for side, each in zip(pair, names, strict=True)):
        raise BadInputError(f"{folder}: its tokenizer files are not of this model: remove them, or put its own there")
    special = tokenizers.special
    source, target = (
        Renumbering.of(len(each), pad=special.pad, begin=special.begin, end=special.end, unknown=special.unknown)
        for each in names
    )
    return Sides(tokenizers, source, target)


def _split(variables: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Each map under a name of its own: those of one input are stored as one."""
    weights: dict[str, Tensor] = {}
    for name, tensor in variables.items():
        match re.fullmatch(r"(.*/(?:self_attention|attention|ffn))/(linear_\d(?:_noact)?)/(weight|bias)", name):
            case None:
                weights[name.replace("/embeddings_0/", "/embeddings/")] = tensor
            case found:
                place, which, kind = found.groups()
                parts = _parts(place, which, gated=f"{place}/linear_0_noact/weight" in variables)
                if len(tensor) % len(parts):
                    raise BadInputError(f"{path}: {name} has {len(tensor):,} rows, for {len(parts)} maps: damaged")
                pieces = tensor.chunk(len(parts))
                weights |= {f"{place}/{part}/{kind}": piece for part, piece in zip(parts, pieces, strict=True)}
    return weights


def _parts(place: str, which: str, *, gated: bool) -> tuple[str, ...]:
    """What the rows of a map are."""
    if place.endswith("/ffn"):
        names = {"linear_0": "gate" if gated else "inner", "linear_0_noact": "inner"}
        return (names.get(which, which),)
    if place.endswith("/self_attention"):
        return {"linear_0": _ATTENTION[:3], "linear_1": _ATTENTION[3:]}.get(which, (which,))
    return {"linear_0": _ATTENTION[:1], "linear_1": _ATTENTION[1:3], "linear_2": _ATTENTION[3:]}.get(which, (which,))


def _settings(numbers: Options, weights: dict[str, Tensor], settings: Options, path: Path) -> dict[str, Any]:
    """Our settings of it, without what follows from its vocabularies; what they say is taken out of the weights."""
    of_stacks = (name for name in numbers.names if name not in _OF_MODELS)
    numbers.check_unset(name for name in of_stacks if name.rpartition("/")[2] not in (*_READ, *_IGNORED))

    def both(name: str, take: Callable[[str], T]) -> T:
        return same(path, {each: take(each) for each in (f"encoder/{name}", f"decoder/{name}")})

    heads = both("num_heads", lambda name: numbers.size(name, 8))
    activation = both("activation", lambda name: numbers.integer(name, 0, least=0, most=len(_ACTIVATIONS) - 1))
    if _ACTIVATIONS[activation] is None:
        raise numbers.refuse("decoder/activation", "GELUSigmoid, Tanh or Sigmoid: no model of ours has it")
    pre = both("pre_norm", lambda name: numbers.flag(name, default=True))
    queries, d_model = shape_of(weights, "decoder/layer_0/self_attention/query/weight", path)
    scale = both("scale_embeddings", lambda name: _is_scaled(numbers, name, d_model))
    width = queries // heads
    return {
        "encoder_layers": count_layers(weights, "encoder/layer_", "/"),
        "decoder_layers": count_layers(weights, "decoder/layer_", "/"),
        "d_model": d_model,
        "d_ff": shape_of(weights, "decoder/layer_0/ffn/inner/weight", path)[0],
        "heads": heads,
        "d_k": width,
        "d_v": width,
        "attention_bias": "decoder/layer_0/self_attention/query/bias" in weights,
        "feed_forward": "gated" if "decoder/layer_0/ffn/gate/weight" in weights else "mlp",
        "feed_forward_bias": "decoder/layer_0/ffn/inner/bias" in weights,
        "activation": _ACTIVATIONS[activation],
        "source_end": _reads_end(numbers, settings),
        "norm": "pre" if pre else "post",
        "final_norm": "decoder/layer_norm/gamma" in weights,
        "scale_embedding": scale,
        "norm_epsilon": settings.number("layer_norm_epsilon", _EPSILON, least=0),
        "embedding_norm": "decoder/layernorm_embedding/gamma" in weights,
        "compatibility": _rescale(numbers, weights, width),
        **_positions(weights, d_model),
    }


def is_end_of_text(folder: Path) -> bool:
    """Whether the end symbol that the encoder reads has to stand in what the runtime is given.

    Raises:
        BadInputError: A file is missing or damaged.
    """
    stored, settings = _read_stored(folder)
    numbers = Options.of(stored.numbers, folder / "model.bin")
    return _reads_end(numbers, settings) and not settings.flag("add_source_eos", default=False)


def _is_scaled(numbers: Options, name: str, d_model: int) -> bool:
    """Whether embeddings are multiplied by sqrt(d_model): a flag, or what they are multiplied by."""
    value = numbers.given(name)
    if not isinstance(value, float):
        return numbers.flag(name, default=True)
    if not math.isclose(value, 1) and not math.isclose(value, math.sqrt(d_model), rel_tol=1e-5):
        raise numbers.refuse(name, f"ours multiplies embeddings by sqrt(d_model), {math.sqrt(d_model):.6g}, or not")
    return not math.isclose(value, 1)


def _reads_end(numbers: Options, settings: Options) -> bool:
    """Whether the encoder reads an end symbol. That of transformers' models is their tokenizer's to add."""
    if settings.flag("add_source_eos", default=False):
        return True
    from_zero = numbers.given("decoder/start_from_zero_embedding")
    if from_zero:  # of Marian and MarianMT alone, which read it
        return True
    if isinstance(numbers.given("encoder/scale_embeddings"), float):
        raise settings.refuse(
            "add_source_eos",
            "whether the converter left the end to a tokenizer of its own, nothing says: import the model itself",
        )
    return False


def _rescale(numbers: Options, weights: dict[str, Tensor], width: int) -> Compatibility:
    """How queries and keys are compared; a scale of one layer's own becomes part of its queries' map."""
    scales = {name: numbers.number(name) for name in numbers.names if name.endswith("/queries_scale")}
    usual = 1 / math.sqrt(max(width, 1))
    if scales and all(value == 1 for value in scales.values()) and width > 1:
        return "dot_product"
    for name, value in scales.items():
        place = name.removesuffix("/queries_scale")
        if not math.isclose(value, usual, rel_tol=1e-6):
            for kind in ("weight", "bias"):
                if (tensor := weights.get(f"{place}/query/{kind}")) is not None:
                    weights[f"{place}/query/{kind}"] = tensor * (value / usual)
    return "scaled_dot_product"


def _positions(weights: dict[str, Tensor], d_model: int) -> dict[str, Any]:
    vectors = weights.get("encoder/layer_0/self_attention/relative_position_keys")
    if vectors is not None:
        return {"positions": "relative", "max_relative_distance": (len(vectors) - 1) // 2}
    names = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
    if not any(name in weights for name in names):  # it makes a table of its own
        return sinusoidal("concatenated", "closed", 1)
    found = take_positions(weights, names, d_model)
    weights |= {name: weights[name].float() for name in names if name in weights}
    return found
