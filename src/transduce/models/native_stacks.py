"""A Transformer's encoder and decoder as the C++ kernels read them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard, cast

import torch
from torch import nn

from transduce.kernels import Format, NativeLayer, NativeNorm, NativeStack, PrepackedMatrix, has_native, prepack
from transduce.kernels.products import MOST_INPUTS
from transduce.layers import Embedding, FeedForward, MultiHeadAttention, PositionalEncoding, attention_scale
from transduce.models.contract import TrainableModel
from transduce.models.stacks import DecoderLayer, EncoderLayer
from transduce.models.transformer import Transformer


def can_run_natively(model: TrainableModel) -> TypeGuard[Transformer]:
    """Whether the C++ kernels are there for where the model is, and compute what it computes: some Transformers."""
    if not isinstance(model, Transformer):
        return False
    config = model.config
    return (
        has_native(model.embedding.weight)
        and config.compatibility in {"scaled_dot_product", "dot_product"}
        and config.positions != "relative"
        and config.position_combination == "add"
        and not config.positions_at_every_layer
        and config.attention_window is None
        and config.residual
        and config.feed_forward in {"mlp", "gated"}
        and config.decoder_self_attention == "multi_head"
        and max(config.d_model, config.d_ff, config.heads * config.d_v) <= MOST_INPUTS
    )


def native_encoder(model: Transformer, format_: Format) -> NativeStack:
    """The encoder with its matrices in a number format; its layers are gone from the model."""
    layers = [_encoder_layer(cast(EncoderLayer, layer), format_) for layer in _take_out(model.encoder)]
    embedding = model.embedding if model.source_embedding is None else model.source_embedding
    return _stack(model, layers, embedding, model.encoder_positions, model.encoder_norm)


def native_decoder(model: Transformer, format_: Format) -> NativeStack:
    """The decoder with its matrices in a number format; its layers are gone from the model."""
    layers = [_decoder_layer(cast(DecoderLayer, layer), format_) for layer in _take_out(model.decoder)]
    return _stack(model, layers, model.embedding, model.decoder_positions, model.decoder_norm)


def _take_out(layers: nn.ModuleList) -> Iterator[nn.Module]:
    """The layers, of which none is kept: a whole model never exists twice."""
    for number, layer in enumerate(layers):
        layers[number] = nn.Identity()
        yield layer


def _stack(
    model: Transformer, layers: list[NativeLayer], embedding: Embedding, positions: PositionalEncoding, last: nn.Module
) -> NativeStack:
    config = model.config
    return NativeStack(
        layers=layers,
        embedding=embedding.weight.detach(),
        embedding_scale=embedding.scale,
        first=None if positions.norm is None else _norm(positions.norm),
        last=_norm(last) if isinstance(last, nn.LayerNorm) else None,
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


def _encoder_layer(layer: EncoderLayer | DecoderLayer, format_: Format) -> NativeLayer:
    """What the layers of both stacks have."""
    inner, outer = _feed_forward(layer.feed_forward, format_)
    attention = cast(MultiHeadAttention, layer.self_attention)
    return NativeLayer(
        self_norm=_norm(layer.self_attention_residual.norm),
        input=_input(attention, format_),
        output=_concatenate([attention.output], format_),
        feed_norm=_norm(layer.feed_forward_residual.norm),
        inner=inner,
        outer=outer,
    )


def _decoder_layer(layer: DecoderLayer, format_: Format) -> NativeLayer:
    memory = layer.cross_attention
    return replace(
        _encoder_layer(layer, format_),
        cross_norm=_norm(layer.cross_attention_residual.norm),
        query=_concatenate([memory.query], format_),
        key_value=_concatenate([memory.key, memory.value], format_),
        cross_output=_concatenate([memory.output], format_),
    )


def _input(attention: MultiHeadAttention, format_: Format) -> PrepackedMatrix:
    return _concatenate([attention.query, attention.key, attention.value], format_)


def _feed_forward(network: nn.Module, format_: Format) -> tuple[PrepackedMatrix, PrepackedMatrix]:
    assert isinstance(network, FeedForward)
    inner = [cast(nn.Linear, each) for each in network.inner_maps]
    return _concatenate(inner, format_), _concatenate([network.outer], format_)


def _concatenate(maps: list[nn.Linear], format_: Format) -> PrepackedMatrix:
    """Several maps of the same inputs as one."""
    bias = None if maps[0].bias is None else torch.cat([each.bias for each in maps])
    return prepack(torch.cat([each.weight for each in maps]), bias, format_)


def _norm(norm: nn.LayerNorm) -> NativeNorm:
    return NativeNorm(norm.weight.detach(), norm.bias.detach())
