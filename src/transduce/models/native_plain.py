"""A Transformer made again of what the C++ kernels read: a model that was prepacked need not be kept beside it."""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import NativeLayer, NativeNorm, NativeStack, PrepackedMatrix, select_outputs, weights_of
from transduce.layers import AverageAttention, FeedForward, PositionalEncoding, PrepackedLinear
from transduce.models.stacks import DecoderLayer, EncoderLayer
from transduce.models.transformer import Transformer
from transduce.models.unfilled import Unfilled


@torch.inference_mode(mode=False)
@torch.no_grad()
def restore(
    config: TransformerConfig,
    stacks: tuple[NativeStack, NativeStack],
    positions: tuple[PositionalEncoding, PositionalEncoding],
    projection: PrepackedMatrix,
) -> Transformer:
    """The model that ``quantize`` would have made of the one whose stacks, encoder's and decoder's, these are.

    In int8 it shares the projection and the embeddings with them; in float32 the embeddings.
    """
    with torch.device("meta"), Unfilled():
        model = Transformer(config).eval()
    encoder, decoder = stacks
    model.embedding.weight = _fixed(decoder.embedding)
    if model.source_embedding is not None:
        model.source_embedding.weight = _fixed(encoder.embedding)
    if model.projection is not None:
        model.projection.weight = _fixed(weights_of(projection))
    if model.output_bias is not None:
        assert projection.bias is not None
        model.output_bias = _fixed(projection.bias[: projection.outputs].clone())
    # Copies: tables grow, and are rounded with the rest, and threads share the others.
    model.encoder_positions, model.decoder_positions = copy.deepcopy(positions)
    for stack, layers, last in (
        (encoder, model.encoder, model.encoder_norm),
        (decoder, model.decoder, model.decoder_norm),
    ):
        for layer, native in zip(layers, stack.layers, strict=True):
            _fill_layer(cast(EncoderLayer | DecoderLayer, layer), native)
        _fill_norm(last, stack.last)
    if projection.format == "int8":
        model.output.prepacked = projection
    return model.to(torch.bfloat16) if projection.format == "bfloat16" else model


def _fill_layer(layer: EncoderLayer | DecoderLayer, native: NativeLayer) -> None:
    attention = layer.self_attention
    if isinstance(attention, AverageAttention):
        _fill_average(attention, native)
    else:
        _fill_maps(attention, ("query", "key", "value"), native.input)
        _fill_maps(attention, ("output",), native.output)
    _fill_norm(layer.self_attention_residual.norm, native.self_norm)
    if isinstance(layer, DecoderLayer):
        _fill_maps(layer.cross_attention, ("query",), native.query)
        _fill_maps(layer.cross_attention, ("key", "value"), native.key_value)
        _fill_maps(layer.cross_attention, ("output",), native.cross_output)
        _fill_norm(layer.cross_attention_residual.norm, native.cross_norm)
    _fill_network(cast(FeedForward, layer.feed_forward), native.inner, native.outer)
    _fill_norm(layer.feed_forward_residual.norm, native.feed_norm)


def _fill_average(attention: AverageAttention, native: NativeLayer) -> None:
    if attention.feed_forward is not None:
        _fill_network(attention.feed_forward, native.average_inner, native.average_outer)
    if attention.gate is not None:
        _fill_maps(attention, ("gate",), native.average_gate)


def _fill_network(network: FeedForward, inner: PrepackedMatrix | None, outer: PrepackedMatrix | None) -> None:
    _fill_maps(network, ("inner",) if network.gate is None else ("gate", "inner"), inner)
    _fill_maps(network, ("outer",), outer)


def _fill_maps(owner: nn.Module, names: Sequence[str], matrix: PrepackedMatrix | None) -> None:
    """Linear maps of the same inputs, whose matrices were concatenated."""
    assert matrix is not None
    widths = [cast(nn.Linear, getattr(owner, name)).out_features for name in names]
    ends = torch.tensor([0, *widths]).cumsum(0).tolist()
    for name, (start, end) in zip(names, pairwise(ends), strict=True):
        own = matrix if len(names) == 1 else select_outputs(matrix, torch.arange(start, end))
        if matrix.format == "int8":
            setattr(owner, name, PrepackedLinear(own))
            continue
        linear = cast(nn.Linear, getattr(owner, name))
        linear.weight = _fixed(weights_of(own))
        if own.bias is not None:
            linear.bias = _fixed(own.bias[: own.outputs].clone())


def _fill_norm(norm: nn.Module, native: NativeNorm | None) -> None:
    if isinstance(norm, nn.LayerNorm):
        assert native is not None
        norm.weight, norm.bias = _fixed(native.gain), _fixed(native.bias)


def _fixed(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
