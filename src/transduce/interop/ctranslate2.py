"""A model directory of CTranslate2: the fast runtime's own classes, filled with our weights."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.bundle import Bundle
from transduce.config import BadInputError, TransduceError, TransformerConfig
from transduce.config.disk import new_directory
from transduce.config.model import Activation
from transduce.interop.projections import Projection, Projections
from transduce.layers import FeedForward, MultiHeadAttention, PositionalEncoding, Residual
from transduce.layers.positions import LearnedPositions
from transduce.models import Transformer
from transduce.models.stacks import DecoderLayer, EncoderLayer
from transduce.text.tokenizer import BEGIN, END, UNKNOWN

# Fields that it has no word for every value of, the values that it can express, and what the others mean.
_SAYABLE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "positions_at_every_layer": ((False,), "positions that come in at every layer"),
    "attention_window": ((None,), "local self-attention"),
    "feed_forward": (("mlp", "gated"), "attention over parameters, or a mixture of experts"),
    "decoder_self_attention": (("multi_head",), "average attention"),
    "residual": ((True,), "a stack without residual connections"),
}
# What it calls our activations.
_ACTIVATIONS: Final[dict[Activation, str]] = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
}
# It keeps a table of positions, of so many rows where ours has no end.
_POSITIONS: Final = 4096


def export_ctranslate2(bundle: Bundle, path: Path) -> None:
    """Write a model directory that ``ctranslate2.Translator`` loads, with our tokenizer files beside it.

    It is complete: weights in float32 (low-precision types are chosen on loading), vocabulary, and a configuration by
    which the runtime adds the source's end symbol itself. The numbers are ours: what CTranslate2 computes otherwise is
    written in its own terms (see ``Projections``; positions beside the embeddings become two sums).

    Raises:
        BadInputError: CTranslate2 has no such model, or ``path`` is not empty.
        TransduceError: CTranslate2 is not installed.
    """
    model = bundle.model
    if not isinstance(model, Transformer):
        raise BadInputError(
            f"CTranslate2 has no model of architecture {bundle.config.architecture!r}: only our own engine runs it"
        )
    _check(model.config)
    with torch.no_grad():
        spec = _specify(model)
    spec.register_source_vocabulary([*bundle.tokenizers.source.vocabulary])
    spec.register_target_vocabulary([*bundle.tokenizers.target.vocabulary])
    with new_directory(path) as folder:
        spec.validate()
        spec.optimize()  # no type changes: a matrix that is used twice is written once
        spec.save(str(folder))
        bundle.tokenizers.save(folder)


def _check(config: TransformerConfig) -> None:
    unsayable = [
        f"{name} = {getattr(config, name)!r} ({meaning})"
        for name, (values, meaning) in _SAYABLE.items()
        if getattr(config, name) not in values
    ]
    if config.compatibility == "additive":
        unsayable.append("compatibility = 'additive' (scores that are no products)")
    if unsayable:
        raise BadInputError(
            f"CTranslate2 cannot express {' nor '.join(unsayable)}: only our own engine runs this model"
        )


def _specify(model: Transformer) -> Any:  # noqa: ANN401 - a library without types
    specs, config = _library(), model.config
    # As its classes are made, only a pre-norm stack can have a last norm; as it computes, either can.
    settings: dict[str, Any] = {"pre_norm": True, "no_final_norm": not config.final_norm}
    settings |= {"relative_position": config.positions == "relative"}
    settings |= {"activation": specs.common_spec.Activation[_ACTIVATIONS[config.activation]]}
    settings |= {"ffn_glu": config.feed_forward == "gated", "layernorm_embedding": config.embedding_norm}
    width = max(config.d_k, config.d_v)
    settings |= {} if width * config.heads == config.d_model else {"head_dim": width}
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, config.heads, **settings),
        specs.TransformerDecoderSpec(config.decoder_layers, config.heads, **settings),
    )
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings, stack.pre_norm = config.scale_embedding, config.norm == "pre"
    spec.config.add_source_eos = config.source_end
    spec.config.bos_token = spec.config.decoder_start_token = BEGIN
    spec.config.eos_token, spec.config.unk_token = END, UNKNOWN
    spec.config.layer_norm_epsilon = config.norm_epsilon
    source = model.embedding if model.source_embedding is None else model.source_embedding
    output = model.embedding if model.projection is None else model.projection
    _fill_entry(spec.encoder, spec.encoder.embeddings[0], source.weight, model.encoder_positions)
    _fill_entry(spec.decoder, spec.decoder.embeddings, model.embedding.weight, model.decoder_positions)
    _fill_linear(spec.decoder.projection, Projection(output.weight, model.output_bias))
    for stack, layers, norm in (
        (spec.encoder, model.encoder, model.encoder_norm),
        (spec.decoder, model.decoder, model.decoder_norm),
    ):
        for twin, layer in zip(stack.layer, cast(Iterable[EncoderLayer | DecoderLayer], layers), strict=True):
            _fill_layer(twin, layer)
        if isinstance(norm, nn.LayerNorm):
            _fill_norm(stack.layer_norm, norm)
    return spec


def _library() -> Any:  # noqa: ANN401
    try:
        from ctranslate2 import specs  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("export to CTranslate2 needs its library: pip install 'transduce[interop]'") from error
    return specs


def _fill_entry(
    stack: Any,  # noqa: ANN401
    embeddings: Any,  # noqa: ANN401
    weight: Float[Tensor, "vocabulary model"],
    positions: PositionalEncoding,
) -> None:
    """What a stack reads: sqrt(d_model) E[ids] + P[positions], as ours does; a map of both is a map of each."""
    table = _tabulate(positions, weight.shape[1])
    if positions.join is not None:
        symbols, places = positions.join.weight.chunk(2, dim=1)
        weight, table = weight @ symbols.T, table @ places.T
    embeddings.weight = weight
    if hasattr(stack, "position_encodings"):
        stack.position_encodings.encodings = table
    if positions.norm is not None:
        _fill_norm(stack.layernorm_embedding, positions.norm)


def _tabulate(positions: PositionalEncoding, d_model: int) -> Float[Tensor, "positions model"]:
    """The encoding of every position; zeros where there is none, as it would make a table of its own."""
    match positions.table:
        case None:
            return torch.zeros(_POSITIONS, d_model)
        case LearnedPositions(weight=weight):
            return weight
        case sinusoidal:
            table: Tensor = sinusoidal(torch.arange(_POSITIONS), _POSITIONS)
            return table


def _fill_layer(twin: Any, layer: EncoderLayer | DecoderLayer) -> None:  # noqa: ANN401
    assert isinstance(layer.self_attention, MultiHeadAttention)
    _fill_attention(twin.self_attention, layer.self_attention, layer.self_attention_residual)
    if isinstance(layer, DecoderLayer):
        _fill_attention(twin.attention, layer.cross_attention, layer.cross_attention_residual)
    assert isinstance(layer.feed_forward, FeedForward)
    network = layer.feed_forward
    if network.gate is None:
        _fill_linear(twin.ffn.linear_0, network.inner)
    else:
        _fill_linear(twin.ffn.linear_0, network.gate)
        _fill_linear(twin.ffn.linear_0_noact, network.inner)
    _fill_linear(twin.ffn.linear_1, network.outer)
    _fill_norm(twin.ffn.layer_norm, layer.feed_forward_residual.norm)


def _fill_attention(twin: Any, attention: MultiHeadAttention, residual: Residual) -> None:  # noqa: ANN401
    ours = Projections.of(attention)
    maps = (ours.query, ours.key, ours.value)
    # Self-attention has one map of all three, the other one of the memory's two.
    for place, parts in zip(twin.linear, ([maps] if len(twin.linear) == 2 else [maps[:1], maps[1:]]), strict=False):
        _fill_linear(place, Projection.concatenate(*parts))
    _fill_linear(twin.linear[-1], ours.output)
    twin.queries_scale = ours.scale
    if attention.relative is not None:
        vectors = attention.relative.vectors()
        twin.relative_position_keys = F.pad(vectors.keys, (0, ours.width - vectors.keys.shape[1]))
        twin.relative_position_values = F.pad(vectors.values, (0, ours.width - vectors.values.shape[1]))
    _fill_norm(twin.layer_norm, residual.norm)


def _fill_linear(twin: Any, linear: Projection | nn.Linear) -> None:  # noqa: ANN401
    twin.weight = linear.weight
    if linear.bias is not None:
        twin.bias = linear.bias


def _fill_norm(twin: Any, norm: nn.LayerNorm) -> None:  # noqa: ANN401
    twin.gamma, twin.beta = norm.weight, norm.bias
