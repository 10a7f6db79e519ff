"""A Transformer's encoder and decoder as the C++ kernels read them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard, cast

from torch import nn

from transduce.config import ModelConfig, TransformerConfig
from transduce.kernels import NativeLayer, NativeNorm, NativeStack, PrepackedMatrix, has_native
from transduce.kernels.products import MOST_INPUTS
from transduce.layers import (
    AverageAttention,
    Embedding,
    FeedForward,
    MultiHeadAttention,
    PositionalEncoding,
    attention_scale,
)
from transduce.models.contract import TrainableModel
from transduce.models.prepacking import NumberSource
from transduce.models.stacks import DecoderLayer, EncoderLayer
from transduce.models.transformer import Transformer


def can_run_natively(model: TrainableModel) -> TypeGuard[Transformer]:
    """Whether the C++ kernels are there for where the model is, and compute what it computes: some Transformers."""
    return isinstance(model, Transformer) and has_native(model.embedding.weight) and kernels_compute(model.config)


def kernels_compute(config: ModelConfig) -> TypeGuard[TransformerConfig]:
    """Whether the C++ kernels, where they are, compute what a model of that configuration computes."""
    return (
        isinstance(config, TransformerConfig)
        and config.compatibility in {"scaled_dot_product", "dot_product"}
        and config.positions != "relative"
        and config.position_combination == "add"
        and not config.positions_at_every_layer
        and config.attention_window is None
        and config.residual
        and config.feed_forward in {"mlp", "gated"}
        and max(config.d_model * (2 if _has_gate(config) else 1), config.d_ff, config.heads * config.d_v) <= MOST_INPUTS
    )


def _has_gate(config: TransformerConfig) -> bool:
    """Whether a map reads two vectors at once: the gate of average attention."""
    return config.decoder_self_attention == "average" and config.average_gate


def native_encoder(model: Transformer, source: NumberSource) -> NativeStack:
    """The encoder with its matrices prepacked; its layers are gone from the model."""
    layers = [_encoder_layer(cast(EncoderLayer, layer), source) for layer in _take_out(model.encoder)]
    embedding = model.embedding if model.source_embedding is None else model.source_embedding
    return _stack(model, source, layers, embedding, model.encoder_positions, model.encoder_norm)


def native_decoder(model: Transformer, source: NumberSource) -> NativeStack:
    """The decoder with its matrices prepacked; its layers are gone from the model."""
    layers = [_decoder_layer(cast(DecoderLayer, layer), source) for layer in _take_out(model.decoder)]
    return _stack(model, source, layers, model.embedding, model.decoder_positions, model.decoder_norm)


def _take_out(layers: nn.ModuleList) -> Iterator[nn.Module]:
    """The layers, of which none is kept: a whole model never exists twice."""
    for number, layer in enumerate(layers):
        layers[number] = nn.Identity()
        yield layer


def _stack(
    model: Transformer,
    source: NumberSource,
    layers: list[NativeLayer],
    embedding: Embedding,
    positions: PositionalEncoding,
    last: nn.Module,
) -> NativeStack:
    config = model.config
    return NativeStack(
        layers=layers,
        embedding=source.numbers(embedding.weight),
        embedding_scale=embedding.scale,
        first=None if positions.norm is None else _norm(positions.norm, source),
        last=_norm(last, source) if isinstance(last, nn.LayerNorm) else None,
        heads=config.heads,
        d_k=config.d_k,
        d_v=config.d_v,
        d_ff=config.d_ff,
        epsilon=config.norm_epsilon,
        scale=attention_scale(config.compatibility, config.d_k),
        pre=config.norm == "pre",
        activation=config.activation,
        gated=config.feed_forward == "gated",
    )


def _encoder_layer(layer: EncoderLayer | DecoderLayer, source: NumberSource) -> NativeLayer:
    """What the layers of both stacks have."""
    inner, outer = _feed_forward(layer.feed_forward, source)
    attention = layer.self_attention if isinstance(layer.self_attention, MultiHeadAttention) else None
    return NativeLayer(
        self_norm=_norm(layer.self_attention_residual.norm, source),
        input=None if attention is None else _input(attention, source),
        output=None if attention is None else _concatenate([attention.output], source),
        feed_norm=_norm(layer.feed_forward_residual.norm, source),
        inner=inner,
        outer=outer,
    )


def _decoder_layer(layer: DecoderLayer, source: NumberSource) -> NativeLayer:
    memory, past = layer.cross_attention, layer.self_attention
    made = replace(
        _encoder_layer(layer, source),
        cross_norm=_norm(layer.cross_attention_residual.norm, source),
        query=_concatenate([memory.query], source),
        key_value=_concatenate([memory.key, memory.value], source),
        cross_output=_concatenate([memory.output], source),
    )
    return _with_average(made, past, source) if isinstance(past, AverageAttention) else made


def _with_average(layer: NativeLayer, attention: AverageAttention, source: NumberSource) -> NativeLayer:
    network, gate = attention.feed_forward, attention.gate
    inner, outer = (None, None) if network is None else _feed_forward(network, source)
    return replace(
        layer,
        average_inner=inner,
        average_outer=outer,
        average_gate=None if gate is None else _concatenate([gate], source),
    )


def _input(attention: MultiHeadAttention, source: NumberSource) -> PrepackedMatrix:
    return _concatenate([attention.query, attention.key, attention.value], source)


def _feed_forward(network: nn.Module, source: NumberSource) -> tuple[PrepackedMatrix, PrepackedMatrix]:
    assert isinstance(network, FeedForward)
    inner = [cast(nn.Linear, each) for each in network.inner_maps]
    return _concatenate(inner, source), _concatenate([network.outer], source)


def _concatenate(maps: list[nn.Linear], source: NumberSource) -> PrepackedMatrix:
    """Several maps of the same inputs as one."""
    return source.matrix([each.weight for each in maps], [each.bias for each in maps])


def _norm(norm: nn.LayerNorm, source: NumberSource) -> NativeNorm:
    return NativeNorm(source.numbers(norm.weight), source.numbers(norm.bias))
