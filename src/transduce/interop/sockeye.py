"""Models of Sockeye 3 (Hieber et al. 2022): a folder of ``params.best``, ``config``, ``version`` and vocabularies."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place, read_text
from transduce.config.model import Activation
from transduce.interop.checkpoints import load_checkpoint, tensors_of
from transduce.interop.filling import Names, convert, drop_equal, shape_of
from transduce.interop.json_files import read_json
from transduce.interop.options import Options, same
from transduce.interop.position_tables import cut_tables, drop_sinusoids
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of
from transduce.interop.yaml_files import read_yaml_file
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN

_log = logging.getLogger(__name__)
T = TypeVar("T")

CONFIG: Final = "config"
VOCABULARIES: Final = ("vocab.src.0.json", "vocab.trg.0.json")
_WEIGHTS: Final = "params.best"
_MOST_BYTES: Final = 2**10
# The classes of its configuration, each of which is read as settings by name.
_OBJECTS: Final = (
    "!ModelConfig",
    "!DataConfig",
    "!DataStatistics",
    "!EmbeddingConfig",
    "!FactorConfig",
    "!LengthRatioConfig",
    "!TransformerConfig",
)
_ACTIVATIONS: Final[dict[str, Activation]] = {"relu": "relu", "swish1": "silu", "gelu": "gelu"}
_EPSILON: Final = 1e-6
# What is done before and behind sub-layers, dropout (d) apart: n is a norm, r the residual sum.
_PRE, _POST = ("n", "r"), ("", "rn")
_OF_LAYERS: Final[dict[str, tuple[Any, ...]]] = {
    "decoder_type": ("transformer",),
    "block_prepended_cross_attention": (False,),
    "use_lhuc": (False,),
}
_SOURCE, _TARGET, _SCORES = (
    f"{name}.weight" for name in ("embedding_source.embedding", "embedding_target.embedding", "output_layer")
)
_SCORES_BIAS: Final = "output_layer.bias"
_TABLES: Final = ("encoder.pos_embedding.weight", "decoder.pos_embedding.weight")
# Parts that no output depends on: the prediction of a translation's length, and copies of modules at work.
_UNREAD: Final = ("length_ratio.", "traced_")


def _names(*, pre: bool, gated: bool) -> Names:
    """What it calls our parts; a fused map's parts have the names that ``_separate`` gives them."""
    # Of a gated network, what is activated is ff1, and else the only map.
    feed_forward = {
        "feed_forward.inner": ".ff.linear" if gated else ".ff.ff1",
        "feed_forward.gate": ".ff.ff1",
        "feed_forward.outer": ".ff.ff2",
    }
    place = "pre" if pre else "post"

    def attention(ours: str, theirs: str) -> dict[str, str]:
        maps = {**{each: f"ff_{each}" for each in ("query", "key", "value")}, "output": "ff_out"}
        return {
            **{f"{ours}.{each}": f".{theirs}.{name}" for each, name in maps.items()},
            f"{ours}_residual.norm": f".{place}_{theirs}.layer_norm",
        }

    feed_forward["feed_forward_residual.norm"] = f".{place}_ff.layer_norm"
    return Names(
        encoder="encoder.layers.{}",
        decoder="decoder.layers.{}",
        in_encoder={**attention("self_attention", "self_attention"), **feed_forward},
        in_decoder={
            **attention("self_attention", "autoregr_layer"),
            **attention("cross_attention", "enc_attention"),
            **feed_forward,
        },
        whole={
            "embedding": "embedding_target.embedding",
            "source_embedding": "embedding_source.embedding",
            "projection": "output_layer",
            "encoder_positions.table": "encoder.pos_embedding",
            "decoder_positions.table": "decoder.pos_embedding",
            "encoder_norm": "encoder.final_process.layer_norm",
            "decoder_norm": "decoder.final_process.layer_norm",
        },
    )


def read_sockeye(folder: Path, codes: Path | None = None) -> Bundle:
    """The model of a folder: its best parameters.

    Text is cut by ``codes``, or by the file of BPE codes in the folder; else at spaces.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say, which is named.
        TransduceError: PyYAML is not installed.
    """
    stored = load_sockeye(folder, codes)
    path, sides, values = stored.path, stored.sides, _settings(stored.options)
    weights = _gather(stored.weights, values["d_model"], values["heads"], path)
    values |= _positions(weights, stored.options, values["d_model"], path)
    for name in (_SOURCE, _TARGET, _SCORES):
        shape_of(weights, name, path)
    shape_of(weights, _SCORES_BIAS, path, axes=1)
    weights["output_bias"] = weights.pop(_SCORES_BIAS)
    tied = drop_equal(weights, _SCORES, _TARGET)
    shared = sides.tokenizers.shared and drop_equal(weights, _SOURCE, _TARGET)
    names = _names(pre=values["norm"] == "pre", gated=values["feed_forward"] == "gated")
    model = convert(weights, names, values | {"tied_projection": tied}, sides, path, shared=shared)
    # As it searches without a word.
    return Bundle(
        model, sides.tokenizers, GenerationConfig(beam_size=5, length_penalty=1.0, length_penalty_kind="marian")
    )


def load_sockeye(folder: Path, codes: Path | None = None) -> Stored:
    """What the files of a folder hold.

    Raises:
        BadInputError: A file is missing or damaged, or of another version.
        TransduceError: PyYAML is not installed.
    """
    _check_version(folder / "version")
    config = Options.of(read_yaml_file(folder / CONFIG, _OBJECTS), folder / CONFIG)
    _refuse_unsayable(config)
    path = folder / _WEIGHTS
    check_place(path)
    weights = tensors_of(load_checkpoint(path), path)
    codes = find_codes(folder) if codes is None else codes
    places = (folder / VOCABULARIES[0], folder / VOCABULARIES[1])
    sides = Sides.of(_read_vocabulary(places[0]), _read_vocabulary(places[1]), (codes, codes), places)
    return Stored((path,), config, weights, sides)


def _check_version(path: Path) -> None:
    version = read_text(path, _MOST_BYTES, "file of the model").strip()
    if not version.startswith("3."):
        raise BadInputError(
            f"{path}: Sockeye {version[:20]!r}: only models of version 3 can be read; those of version 2 are MXNet's, "
            f"and Sockeye 3.0 makes them its own (sockeye.mx_to_pt)"
        )


def _settings(config: Options) -> dict[str, Any]:
    """Our settings, without positions and what follows from the vocabularies."""
    encoder, decoder = _refuse_unsayable(config)

    def both(name: str, read: Callable[[Options], T]) -> T:
        return same(config.place, {side.key(name): read(side) for side in (encoder, decoder)})

    gated = both("use_glu", lambda side: side.flag("use_glu", default=False))
    return {
        "encoder_layers": encoder.size("num_layers"),
        "decoder_layers": decoder.size("num_layers"),
        "d_model": both("model_size", lambda side: side.size("model_size")),
        "d_ff": both("feed_forward_num_hidden", lambda side: side.size("feed_forward_num_hidden")),
        "heads": both("attention_heads", lambda side: side.size("attention_heads")),
        "activation": both("act_type", lambda side: side.choice("act_type", _ACTIVATIONS)),
        "feed_forward": "gated" if gated else "mlp",
        "norm": both("postprocess_sequence", _norm),
        "norm_epsilon": _EPSILON,
        "output_bias": True,
        "dropout": decoder.rate("dropout_prepost", 0.0),
        "attention_dropout": decoder.rate("dropout_attention", 0.0),
        "activation_dropout": decoder.rate("dropout_act", 0.0),
    }


def _refuse_unsayable(config: Options) -> tuple[Options, Options]:
    """The settings of the encoder and the decoder."""
    data = config.section("config_data")
    for name in ("num_source_factors", "num_target_factors"):
        if data.integer(name, 1) != 1:
            raise data.refuse(name, "ours reads and writes words without factors")
    for side in ("source", "target"):
        embedding = config.section(f"config_embed_{side}")
        embedding.check_unset(["factor_configs"])
    config.check({"lhuc": (False,), "dtype": ("float32", "float16", "bfloat16")})
    encoder, decoder = config.section("config_encoder"), config.section("config_decoder")
    for section in (encoder, decoder):
        section.check(_OF_LAYERS)
    return encoder, decoder


def _norm(options: Options) -> str:
    """Where norms stand, by what is done before and behind sub-layers; dropout is none of a model's weights."""
    before, behind = (options.text(f"{name}process_sequence") for name in ("pre", "post"))
    match before.replace("d", ""), behind.replace("d", ""):
        case sequences if sequences == _PRE:
            return "pre"
        case sequences if sequences == _POST:
            return "post"
        case _:
            raise options.refuse(
                "postprocess_sequence",
                f"behind a preprocess_sequence of {before!r}: ours has a norm before sub-layers and a sum behind them "
                f"(n, dr), or both behind them (none, drn)",
            )


def _gather(stored: Mapping[str, Tensor], d_model: int, heads: int, path: Path) -> dict[str, Tensor]:
    """All weights, without what no output depends on; fused maps are taken apart."""
    weights: dict[str, Tensor] = {}
    # What several names share is taken apart once, and stays shared.
    taken_apart: dict[tuple[int, tuple[int, ...], str], dict[str, Tensor]] = {}
    for name, tensor in stored.items():
        module, _, last = name.rpartition(".")
        place, _, part = module.rpartition(".")
        if name.startswith(_UNREAD) or ".traced_" in name:
            continue
        if name.startswith("nvs."):
            if last == "weight":
                _log.warning(f"{path}: {name} is left out: outputs are chosen among all symbols")
        elif part in ("ff_in", "ff_kv") and last == "weight":
            key = tensor.data_ptr(), tuple(tensor.shape), part
            if key not in taken_apart:
                taken_apart[key] = _separate(tensor, d_model, heads, name, path)
            weights |= {f"{place}.ff_{each}.weight": one for each, one in taken_apart[key].items()}
        elif part == "ff_q":
            weights[f"{place}.ff_query.{last}"] = tensor
        else:
            weights[name] = tensor
    return weights


def _separate(fused: Tensor, d_model: int, heads: int, name: str, path: Path) -> dict[str, Tensor]:
    """A fused map as those of keys and values, and of queries where it has them.

    Queries stand first. Behind them each head has its keys and then its values, as its search has them; its training
    has all keys before all values, but writes them so as well.
    """
    count = 3 if name.endswith("ff_in.weight") else 2
    if fused.dim() != 2 or d_model < 1 or heads < 1 or d_model % heads or len(fused) != count * d_model:
        raise BadInputError(
            f"{path}: {name} has shape {tuple(fused.shape)}, and no {count} maps of {heads} heads to a model_size of "
            f"{d_model}: the file is damaged, or its settings are another's"
        )
    pairs = fused[-2 * d_model :].view(heads, 2, d_model // heads, fused.shape[1])
    found = {"key": pairs[:, 0].flatten(0, 1), "value": pairs[:, 1].flatten(0, 1)}
    if count == 3:
        found["query"] = fused[:d_model]
    return found


def _positions(weights: dict[str, Tensor], config: Options, d_model: int, path: Path) -> dict[str, Any]:
    name = "positional_embedding_type"
    sections = [config.section(f"config_{side}") for side in ("encoder", "decoder")]
    kinds = {each: each for each in ("fixed", "learned")}
    if same(config.place, {side.key(name): side.choice(name, kinds) for side in sections}) == "fixed":
        return drop_sinusoids(weights, _TABLES, d_model, "concatenated", "open", path)
    for table in _TABLES:
        shape_of(weights, table, path)
    return cut_tables(weights, _TABLES)


def _read_vocabulary(path: Path) -> Vocabulary:
    """Symbols and their ids, as JSON has them by name."""
    stored = read_json(path)
    ids = list(stored.values())
    if any(not isinstance(each, int) or isinstance(each, bool) for each in ids) or sorted(ids) != [*range(len(ids))]:
        raise BadInputError(f"{path}: its ids are not the numbers from 0 to {len(ids) - 1:,}, each once: damaged")
    names = sorted(stored, key=lambda name: stored[name])
    pad, begin, end, unknown = (index_of(names, name, path) for name in (PAD, BEGIN, END, UNKNOWN))
    return Vocabulary.of(names, pad=pad, begin=begin, end=end, unknown=unknown)
