"""Models around ``torch.nn.Transformer``: a state dict, and a TOML file that says what the weights do not.

weights = "model.pt"
source_vocabulary = "source.txt"        # one symbol a line
target_vocabulary = "target.txt"
heads = 8

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
from pathlib import Path
from typing import Any, Final, Literal, final

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import BadInputError, GenerationConfig
from transduce.config.files import check_place, check_size
from transduce.config.model import Activation
from transduce.config.values import what_is_wrong
from transduce.interop.checkpoints import load_checkpoint, tensors_of
from transduce.interop.filling import Names, convert, count_layers, drop_equal, shape_of
from transduce.interop.position_tables import sinusoidal, take_positions
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines

_MOST_BYTES: Final = 2**20
_NAME: Final = r"^[^/\\]+$"  # of a file in the same folder


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@final
class _Places(_Described):
    """What the state dict calls its parts; the defaults are those of PyTorch's tutorial on translation."""

    transformer: str = Field("transformer", description="the nn.Transformer")
    source_embedding: str = Field("src_tok_emb.embedding.weight", description="embeddings of the source")
    target_embedding: str = Field("tgt_tok_emb.embedding.weight", description="embeddings of the target")
    output: str = Field("generator.weight", description="the matrix of the logits; left out of the state dict: tied")
    output_bias: str = Field("generator.bias", description="the bias of the logits, where there is one")
    positions: str = Field("positional_encoding.pos_embedding", description="table of positions, where there is one")


@final
class _Symbols(_Described):
    """What the vocabularies call their special symbols."""

    pad: str = "<pad>"
    begin: str = "<bos>"
    end: str = "<eos>"
    unknown: str = "<unk>"


@final
class _Settings(_Described):
    """What the file says."""

    weights: str = Field("model.pt", pattern=_NAME, description="the state dict, in the same folder")
    source_vocabulary: str = Field("source.txt", pattern=_NAME, description="symbols of the source, one a line")
    target_vocabulary: str = Field("target.txt", pattern=_NAME, description="symbols of the target, one a line")
    heads: int = Field(ge=1, description="nhead")
    norm_first: bool = Field(False, description="norm_first")
    activation: Activation = Field("relu", description="activation; torch's gelu is gelu")
    norm_epsilon: float = Field(1e-5, gt=0, description="layer_norm_eps")
    scale_embedding: bool = Field(True, description="whether embeddings are multiplied by sqrt(d_model)")
    source_end: bool = Field(True, description="whether sources end with the end symbol")
    positions: Literal["table", "sinusoidal", "none"] = Field(
        "table", description="table: as the state dict has it; sinusoidal: the paper's, which it does not hold; none"
    )
    names: _Places = _Places()
    symbols: _Symbols = _Symbols()


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
    settings = _read(description)
    path = description.with_name(settings.weights)
    check_place(path)
    stored = load_checkpoint(path)
    weights = _gather(tensors_of(stored, path), settings.names, path)
    sides = _read_sides(description.parent, settings, codes)
    values = _values(weights, settings, path)
    tied = drop_equal(weights, _SCORES, _TARGET)
    shared = sides.tokenizers.shared and drop_equal(weights, _SOURCE, _TARGET)
    values |= {"tied_projection": tied, "output_bias": "output_bias" in weights}
    model = convert(weights, _NAMES, values, sides, path, shared=shared)
    return Bundle(model, sides.tokenizers, GenerationConfig())


def _read(path: Path) -> _Settings:
    check_size(path, _MOST_BYTES)
    try:
        return _Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such description of a model") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise BadInputError(f"{path}: {key} {what_is_wrong(first, _Settings)}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable TOML: {error}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error


def _gather(stored: Mapping[str, Tensor], names: _Places, path: Path) -> dict[str, Tensor]:
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
            # Tables may have an axis for the batch.
            weights |= dict.fromkeys(outside[name], tensor.squeeze() if name == names.positions else tensor)
        elif inner.endswith((".in_proj_weight", ".in_proj_bias")):
            place, _, kind = inner.rpartition(".in_proj_")
            parts = zip("qkv", tensor.chunk(3), strict=False)
            weights |= {f"{place}.{letter}_proj.{kind}": part for letter, part in parts}
        else:
            weights[inner] = tensor
    # With bias=False, norms have none either: it is zero.
    norms = [name for name in weights if ".norm" in name and name.endswith(".weight")]
    for name in norms:
        weights.setdefault(f"{name.removesuffix('weight')}bias", torch.zeros_like(weights[name]))
    for name in (names.source_embedding, names.target_embedding):
        if name not in stored:
            raise BadInputError(f"{path}: {name} is missing among the weights: say its name in [names]")
    return weights


def _values(weights: dict[str, Tensor], settings: _Settings, path: Path) -> dict[str, Any]:
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


def _read_sides(folder: Path, settings: _Settings, codes: Path | None) -> Sides:
    codes = find_codes(folder) if codes is None else codes
    places = (folder / settings.source_vocabulary, folder / settings.target_vocabulary)
    vocabularies = []
    for place in places:
        names, symbols = read_lines(place), settings.symbols
        pad = names.index(symbols.pad) if symbols.pad in names else None
        begin, end, unknown = (index_of(names, name, place) for name in (symbols.begin, symbols.end, symbols.unknown))
        vocabularies.append(Vocabulary.of(names, pad=pad, begin=begin, end=end, unknown=unknown))
    return Sides.of(vocabularies[0], vocabularies[1], (codes, codes), places)
