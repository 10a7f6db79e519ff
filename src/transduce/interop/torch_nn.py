"""Models around ``torch.nn.Transformer``: a state dict, and a TOML file that says what the weights do not.

weights = "model.pt"
source_vocabulary = "source.txt"        # one symbol a line
target_vocabulary = "target.txt"
heads = 8
source_begin = false                    # no begin symbol before sources: as in the training, and has to be said

[names]                                 # in the state dict, where they are other ones
transformer = "transformer"
source_embedding = "src_tok_emb.embedding.weight"
target_embedding = "tgt_tok_emb.embedding.weight"
output = "generator.weight"
output_bias = "generator.bias"
positions = "positional_encoding.pos_embedding"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, final

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place, read_text
from transduce.config.model import Activation
from transduce.interop.checkpoints import load_checkpoint, tensors_of
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.options import Options
from transduce.interop.position_tables import sinusoidal, take_positions
from transduce.interop.stored import Stored
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines

_MOST_BYTES: Final = 2**20
_ACTIVATIONS: Final[dict[str, Activation]] = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_tanh", "silu": "silu"}
Positions = Literal["table", "sinusoidal", "none"]
_POSITIONS: Final[dict[str, Positions]] = {"table": "table", "sinusoidal": "sinusoidal", "none": "none"}


@final
@dataclass(frozen=True)
class Places:
    """What the state dict calls its parts; the defaults are those of PyTorch's tutorial on translation.

    Without ``output``, scores are by the target's embeddings; ``output_bias`` and ``positions`` may be missing there.
    """

    transformer: str = "transformer"
    source_embedding: str = "src_tok_emb.embedding.weight"
    target_embedding: str = "tgt_tok_emb.embedding.weight"
    output: str = "generator.weight"
    output_bias: str = "generator.bias"
    positions: str = "positional_encoding.pos_embedding"


@final
@dataclass(frozen=True)
class Symbols:
    """What the vocabularies call their special symbols; ``pad`` may be missing there."""

    pad: str = "<pad>"
    begin: str = "<bos>"
    end: str = "<eos>"
    unknown: str = "<unk>"


@final
@dataclass(frozen=True)
class Description:
    """What the file says. ``weights`` and vocabularies are files in its folder.

    ``heads``, ``norm_first``, ``activation`` and ``norm_epsilon`` are torch's nhead, norm_first, activation and
    layer_norm_eps; ``positions`` are "table", as the state dict has it, "sinusoidal", the paper's, which it does not
    hold, or "none". ``scale_embedding`` is whether embeddings are multiplied by sqrt(d_model), ``source_end`` whether
    sources end with the end symbol. The file says besides, as ``source_begin``, that they begin with no begin symbol.
    """

    weights: str
    source_vocabulary: str
    target_vocabulary: str
    heads: int
    norm_first: bool
    activation: Activation
    norm_epsilon: float
    scale_embedding: bool
    source_end: bool
    positions: Positions
    names: Places
    symbols: Symbols


_ATTENTION: Final = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_SELF: Final = {f"self_attention.{ours}": f".self_attn.{theirs}" for ours, theirs in _ATTENTION.items()}
_FEED_FORWARD: Final = {"feed_forward.inner": ".linear1", "feed_forward.outer": ".linear2"}
_NAMES: Final = Names(
    encoder="encoder.layers.{}",
    decoder="decoder.layers.{}",
    in_encoder={
        **_SELF,
        **_FEED_FORWARD,
        "self_attention_residual.norm": ".norm1",
        "feed_forward_residual.norm": ".norm2",
    },
    in_decoder={
        **_SELF,
        **{f"cross_attention.{ours}": f".multihead_attn.{theirs}" for ours, theirs in _ATTENTION.items()},
        **_FEED_FORWARD,
        "self_attention_residual.norm": ".norm1",
        "cross_attention_residual.norm": ".norm2",
        "feed_forward_residual.norm": ".norm3",
    },
    whole={"encoder_norm": "encoder.norm", "decoder_norm": "decoder.norm"},
)
# Ours, under which the parts outside of the nn.Transformer go.
_TARGET, _SOURCE, _SCORES = "embedding.weight", "source_embedding.weight", "projection.weight"
_TABLES: Final = ("encoder_positions.table.weight", "decoder_positions.table.weight")


def read_torch_nn(description: Path, codes: Path | None = None) -> Bundle:
    """The model that a TOML file describes, whose other files lie beside it.

    Text is cut by the merges of ``codes``, or of the file of BPE codes in the folder; else at spaces.

    Raises:
        BadInputError: A file is missing or damaged, or the model is one that ours cannot say.
    """
    settings, stored = load_torch_nn(description, codes)
    path, sides = stored.path, stored.sides
    weights = _gather(stored.weights, settings.names, path)
    values = _values(weights, settings, path)
    tied = drop_equal(weights, _SCORES, _TARGET)
    shared = sides.tokenizers.shared and drop_equal(weights, _SOURCE, _TARGET)
    values |= {"tied_projection": tied, "output_bias": "output_bias" in weights}
    model = convert(weights, _NAMES, values, sides, path, shared=shared)
    return Bundle(model, sides.tokenizers, GenerationConfig())


def load_torch_nn(description: Path, codes: Path | None = None) -> tuple[Description, Stored]:
    """What the files hold.

    Raises:
        BadInputError: One is missing or damaged.
    """
    settings = read_description(description)
    path = description.with_name(settings.weights)
    check_place(path)
    weights = tensors_of(load_checkpoint(path), path)
    sides = _read_sides(description.parent, settings, codes)
    return settings, Stored((path,), Options.of({}, description), weights, sides)


def read_description(path: Path) -> Description:
    """What a file says of a model.

    Raises:
        BadInputError: It is missing, no TOML, or an option is missing, unknown or of another type.
    """
    text = read_text(path, _MOST_BYTES, "description of a model")
    try:
        options = Options.of(tomllib.loads(text), path)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable TOML: {error}") from error
    options.check_known([*(field.name for field in fields(Description)), "source_begin"])
    # It has no default, since the sources of PyTorch's tutorial have one, which no model of ours reads.
    if options.flag("source_begin"):
        raise options.refuse("source_begin", "no encoder of ours reads a begin symbol: train without it")
    return Description(
        weights=_file(options, "weights", "model.pt"),
        source_vocabulary=_file(options, "source_vocabulary", "source.txt"),
        target_vocabulary=_file(options, "target_vocabulary", "target.txt"),
        heads=options.size("heads"),
        norm_first=options.flag("norm_first", default=False),
        activation=options.choice("activation", _ACTIVATIONS, "relu"),
        norm_epsilon=options.number("norm_epsilon", 1e-5, least=0),
        scale_embedding=options.flag("scale_embedding", default=True),
        source_end=options.flag("source_end", default=True),
        positions=options.choice("positions", _POSITIONS, "table"),
        names=Places(**_texts(options.section("names", optional=True), asdict(Places()))),
        symbols=Symbols(**_texts(options.section("symbols", optional=True), asdict(Symbols()))),
    )


def _file(options: Options, name: str, usual: str) -> str:
    """The name of a file in the same folder."""
    file = options.text(name, usual)
    if not file or Path(file).name != file or "\\" in file:
        raise options.refuse(name, "the name of a file in the same folder belongs here")
    return file


def _texts(section: Options, usual: Mapping[str, str]) -> dict[str, str]:
    section.check_known(usual)
    return {name: section.text(name, default) for name, default in usual.items()}


def _gather(stored: Mapping[str, Tensor], names: Places, path: Path) -> dict[str, Tensor]:
    """The nn.Transformer's weights under its own names, its fused maps apart; the other parts under ours."""
    outside = {
        names.source_embedding: (_SOURCE,),
        names.target_embedding: (_TARGET,),
        names.output: (_SCORES,),
        names.output_bias: ("output_bias",),
        names.positions: _TABLES,
    }
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        inner = name.removeprefix(f"{names.transformer}.")
        if name in outside:
            weights |= dict.fromkeys(outside[name], _table(name, tensor, path) if name == names.positions else tensor)
        elif inner.endswith((".in_proj_weight", ".in_proj_bias")):
            if not tensor.dim():
                raise BadInputError(f"{path}: {name} has no axes where rows belong: damaged")
            place, _, kind = inner.rpartition(".in_proj_")
            parts = zip("qkv", tensor.chunk(3), strict=False)
            weights |= {f"{place}.{letter}_proj.{kind}": part for letter, part in parts}
        else:
            weights[inner] = tensor
    # With bias=False, no norm has one either: it is zero. One that is missing beside others is lost.
    norms = [name for name in weights if ".norm" in name]
    if not any(name.endswith(".bias") for name in norms):
        weights |= {f"{name.removesuffix('weight')}bias": torch.zeros_like(weights[name]) for name in norms}
    for name in (names.source_embedding, names.target_embedding):
        if name not in stored:
            raise BadInputError(f"{path}: {name} is missing among the weights: say its name in [names]")
    return weights


def _table(name: str, tensor: Tensor, path: Path) -> Tensor:
    """A table of positions, which may have an axis for the batch."""
    table = tensor.squeeze()
    if table.dim() != 2:
        raise BadInputError(
            f"{path}: {name} has shape {tuple(tensor.shape)} where a row for each position belongs: damaged, or say "
            f"the table's name in [names]"
        )
    return table


def _values(weights: dict[str, Tensor], settings: Description, path: Path) -> dict[str, Any]:
    d_ff, d_model = shape_of(weights, "decoder.layers.0.linear1.weight", path)
    match settings.positions:
        case "table":
            if _TABLES[0] not in weights:
                raise BadInputError(
                    f"{path}: {settings.names.positions} is missing among the weights: say its name in [names], or "
                    f"positions = 'sinusoidal' or 'none'"
                )
            positions = take_positions(weights, _TABLES, d_model)
        case "sinusoidal":
            positions = sinusoidal("interleaved", "open")
        case "none":
            positions = {"positions": "none"}
    return {
        "encoder_layers": count_layers(weights, "encoder.layers."),
        "decoder_layers": count_layers(weights, "decoder.layers."),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": settings.heads,
        "attention_bias": "decoder.layers.0.self_attn.q_proj.bias" in weights,
        "feed_forward_bias": "decoder.layers.0.linear1.bias" in weights,
        "activation": settings.activation,
        "norm": "pre" if settings.norm_first else "post",
        "final_norm": "decoder.norm.weight" in weights,
        "norm_epsilon": settings.norm_epsilon,
        "scale_embedding": settings.scale_embedding,
        "source_end": settings.source_end,
        **positions,
    }


def _read_sides(folder: Path, settings: Description, codes: Path | None) -> Sides:
    codes = find_codes(folder) if codes is None else codes
    places = (folder / settings.source_vocabulary, folder / settings.target_vocabulary)
    vocabularies = []
    for place in places:
        names, symbols = read_lines(place), settings.symbols
        pad = names.index(symbols.pad) if symbols.pad in names else None
        begin, end, unknown = (index_of(names, name, place) for name in (symbols.begin, symbols.end, symbols.unknown))
        vocabularies.append(Vocabulary.of(names, pad=pad, begin=begin, end=end, unknown=unknown))
    return Sides.of(vocabularies[0], vocabularies[1], (codes, codes), places)
