"""The Transformer in ONNX's operations: an encoder and a decoder, over padded batches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never, cast, final

import torch
from torch import nn

from transduce.config.model import Activation
from transduce.interop.layer_walk import DECODER_INPUT, DECODER_OUTPUT, ENCODER_INPUT
from transduce.interop.onnx_graph import Graph, Value
from transduce.interop.projections import Projection, Projections
from transduce.layers import Embedding, FeedForward, MultiHeadAttention, PositionalEncoding, Residual
from transduce.layers.positions import LearnedPositions
from transduce.models import Transformer
from transduce.models.stacks import DecoderLayer, EncoderLayer

# A table of positions has so many rows where ours has no end.
POSITIONS: Final = 4096
_MASKED: Final = float(torch.finfo(torch.float32).min)


@final
@dataclass(frozen=True)
class KeyValues:
    """What an attention looks at, split into heads: (batch, heads, length, width) each."""

    key: Value
    value: Value


@final
@dataclass(frozen=True)
class Cache:
    """What a decoder layer keeps for the next symbols: of those that it has read, and of the memory."""

    past: KeyValues
    memory: KeyValues


def encode(graph: Graph, model: Transformer, ids: Value, symbols: Value) -> Value:
    """The encoder's output for ids of shape (batch, source); ``symbols`` is 1 at each of them, 0 at padding."""
    embedding = model.embedding if model.source_embedding is None else model.source_embedding
    zero = graph.integer(0)
    positions = graph.apply("Range", zero, _size(graph, ids, 1), graph.integer(1))
    seen = _mask_padding(graph, symbols)
    if model.config.attention_window is not None:
        seen = graph.apply("Add", seen, _hide(graph, _near(graph, positions, positions, model.config.attention_window)))
    x = _embed(graph, embedding, model.encoder_positions, ids, positions)
    graph.apply("Identity", x, name=ENCODER_INPUT)
    for number, layer in enumerate(cast(Iterable[EncoderLayer], model.encoder)):
        x = _again(graph, model.encoder_positions, x, positions) if number else x
        assert isinstance(layer.self_attention, MultiHeadAttention)
        query = _prepare(graph, layer.self_attention_residual, x)
        found = _look(graph, layer.self_attention, query, _key_values(graph, layer.self_attention, query), seen)
        x = _transform(graph, layer, _add(graph, layer.self_attention_residual, x, found))
        graph.apply("Identity", x, name=f"encoder layer {number + 1}")
    return _finish(graph, model.encoder_norm, x)


def decode(
    graph: Graph,
    model: Transformer,
    ids: Value,
    memory: Value | None,
    memory_symbols: Value,
    caches: Sequence[Cache] | None,
) -> tuple[Value, list[Cache]]:
    """The logits behind ids of shape (batch, target), and what the next symbols need.

    Without ``caches`` nothing has been read, and ``memory`` is the encoder's output; with them, ids are the next ones.
    """
    read = graph.integer(0) if caches is None else _size(graph, caches[0].past.key, 2)
    end = graph.apply("Add", read, _size(graph, ids, 1))
    positions = graph.apply("Range", read, end, graph.integer(1))
    places = graph.apply("Range", graph.integer(0), end, graph.integer(1))
    seen = _hide(graph, _past(graph, positions, places))
    if model.config.attention_window is not None:
        seen = graph.apply("Add", seen, _hide(graph, _near(graph, positions, places, model.config.attention_window)))
    memory_seen = _mask_padding(graph, memory_symbols)
    x = _embed(graph, model.embedding, model.decoder_positions, ids, positions)
    graph.apply("Identity", x, name=DECODER_INPUT)
    after = []
    for number, layer in enumerate(cast(Iterable[DecoderLayer], model.decoder)):
        x = _again(graph, model.decoder_positions, x, positions) if number else x
        assert isinstance(layer.self_attention, MultiHeadAttention)
        query = _prepare(graph, layer.self_attention_residual, x)
        past = _key_values(graph, layer.self_attention, query)
        if caches is not None:
            past = _append(graph, caches[number].past, past)
        found = _look(graph, layer.self_attention, query, past, seen)
        x = _add(graph, layer.self_attention_residual, x, found)
        query = _prepare(graph, layer.cross_attention_residual, x)
        if caches is not None:
            known = caches[number].memory
        else:
            assert memory is not None
            known = _key_values(graph, layer.cross_attention, memory)
        found = _look(graph, layer.cross_attention, query, known, memory_seen)
        x = _transform(graph, layer, _add(graph, layer.cross_attention_residual, x, found))
        graph.apply("Identity", x, name=f"decoder layer {number + 1}")
        after.append(Cache(past, known))
    hidden = graph.apply("Identity", _finish(graph, model.decoder_norm, x), name=DECODER_OUTPUT)
    # Runtimes transpose once, as they load it: what embeds symbols and scores them is one constant of the file.
    logits = graph.apply("MatMul", hidden, graph.apply("Transpose", graph.weight(model.output.weight), perm=[1, 0]))
    if model.output_bias is not None:
        logits = graph.apply("Add", logits, graph.weight(model.output_bias))
    return logits, after


def width(model: Transformer) -> int:
    """That of every head's keys and values in the graph."""
    return max(model.config.d_k, model.config.d_v)


def _size(graph: Graph, value: Value, axis: int) -> Value:
    return graph.apply("Gather", graph.apply("Shape", value), graph.integer(axis))


def _hide(graph: Graph, visible: Value) -> Value:
    """What is added to scores: 0 where it is true, else so little that the softmax has nothing there."""
    return graph.apply("Where", visible, graph.number(0), graph.number(_MASKED))


def _mask_padding(graph: Graph, symbols: Value) -> Value:
    """The same of padding, for all heads and queries: (batch, 1, 1, length)."""
    real = graph.apply("Cast", graph.apply("Unsqueeze", symbols, graph.integers(1, 2)), to=9)  # to truth values
    return _hide(graph, real)


def _differences(graph: Graph, positions: Value, places: Value) -> Value:
    """How far behind each key is: (queries, keys)."""
    return graph.apply("Sub", graph.apply("Unsqueeze", positions, graph.integers(1)), places)


def _past(graph: Graph, positions: Value, places: Value) -> Value:
    """Whether a key is no later than a query."""
    return graph.apply("GreaterOrEqual", _differences(graph, positions, places), graph.integer(0))


def _near(graph: Graph, positions: Value, places: Value, window: int) -> Value:
    """Whether a key is at most half a window from a query."""
    distance = graph.apply("Abs", _differences(graph, positions, places))
    return graph.apply("LessOrEqual", distance, graph.integer(window // 2))


def _embed(graph: Graph, embedding: Embedding, encoding: PositionalEncoding, ids: Value, positions: Value) -> Value:
    x = graph.apply("Gather", graph.weight(embedding.weight), ids)
    if embedding.scale != 1:
        x = graph.apply("Mul", x, graph.number(embedding.scale))
    x = _join(graph, encoding, x, positions)
    return x if encoding.norm is None else _normalize(graph, encoding.norm, x)


def _again(graph: Graph, encoding: PositionalEncoding, x: Value, positions: Value) -> Value:
    return _join(graph, encoding, x, positions) if encoding.at_every_layer else x


def _join(graph: Graph, encoding: PositionalEncoding, x: Value, positions: Value) -> Value:
    """X + P[positions]; or a map of both side by side, which is the sum of a map of each."""
    if encoding.table is None:
        return x
    rows = len(encoding.table.weight) if isinstance(encoding.table, LearnedPositions) else POSITIONS
    vectors = encoding.vectors(rows)
    assert vectors is not None
    if encoding.join is not None:
        symbols, places = encoding.join.weight.detach().chunk(2, dim=1)
        x = graph.apply("MatMul", x, graph.constant(symbols.T, encoding.join, "symbols"))
        vectors = vectors @ places.T
    table = graph.constant(vectors, encoding, "positions")
    return graph.apply("Add", x, graph.apply("Gather", table, positions))


def _prepare(graph: Graph, residual: Residual, x: Value) -> Value:
    """What a sub-layer reads."""
    match residual.position:
        case "post":
            return x
        case "pre":
            return _normalize(graph, residual.norm, x)
        case _:
            assert_never(residual.position)


def _add(graph: Graph, residual: Residual, x: Value, output: Value) -> Value:
    """The stream with what a sub-layer made."""
    total = graph.apply("Add", x, output) if residual.residual else output
    match residual.position:
        case "post":
            return _normalize(graph, residual.norm, total)
        case "pre":
            return total
        case _:
            assert_never(residual.position)


def _normalize(graph: Graph, norm: nn.LayerNorm, x: Value) -> Value:
    return graph.apply(
        "LayerNormalization", x, graph.weight(norm.weight), graph.weight(norm.bias), axis=-1, epsilon=norm.eps
    )


def _finish(graph: Graph, norm: nn.Module, x: Value) -> Value:
    return _normalize(graph, norm, x) if isinstance(norm, nn.LayerNorm) else x


def _key_values(graph: Graph, attention: MultiHeadAttention, x: Value) -> KeyValues:
    ours = Projections.of(attention)
    split = (
        _split(graph, attention, _map(graph, projection, x, attention, name), ours.width)
        for projection, name in ((ours.key, "key"), (ours.value, "value"))
    )
    return KeyValues(*split)


def _append(graph: Graph, past: KeyValues, new: KeyValues) -> KeyValues:
    joined = (graph.apply("Concat", *pair, axis=2) for pair in ((past.key, new.key), (past.value, new.value)))
    return KeyValues(*joined)


def _look(graph: Graph, attention: MultiHeadAttention, x: Value, attended: KeyValues, seen: Value) -> Value:
    """softmax(Q K^T scale + seen) V of every head, mapped by W^O (section 3.2.2)."""
    ours = Projections.of(attention)
    query = _split(graph, attention, _map(graph, ours.query, x, attention, "query"), ours.width)
    scores = graph.apply("MatMul", query, graph.apply("Transpose", attended.key, perm=[0, 1, 3, 2]))
    scores = graph.apply("Add", graph.apply("Mul", scores, graph.number(ours.scale)), seen)
    found = graph.apply("MatMul", graph.apply("Softmax", scores, axis=-1), attended.value)
    found = graph.apply("Reshape", graph.apply("Transpose", found, perm=[0, 2, 1, 3]), graph.integers(0, 0, -1))
    return _map(graph, ours.output, found, attention, "output")


def _split(graph: Graph, attention: MultiHeadAttention, x: Value, width_: int) -> Value:
    """Into (batch, heads, length, width)."""
    heads = graph.apply("Reshape", x, graph.integers(0, 0, attention.heads.number, width_))
    return graph.apply("Transpose", heads, perm=[0, 2, 1, 3])


def _map(graph: Graph, linear: Projection | nn.Linear, x: Value, of: nn.Module, name: str) -> Value:
    """X W^T + b; ``of`` and ``name`` say which map it is."""
    product = graph.apply("MatMul", x, graph.constant(linear.weight.T, of, name))
    return (
        product if linear.bias is None else graph.apply("Add", product, graph.constant(linear.bias, of, name, "bias"))
    )


def _transform(graph: Graph, layer: EncoderLayer | DecoderLayer, x: Value) -> Value:
    """The feed-forward sub-layer (section 3.3)."""
    network, residual = layer.feed_forward, layer.feed_forward_residual
    assert isinstance(network, FeedForward)
    read = _prepare(graph, residual, x)
    hidden = _map(graph, network.inner, read, network, "inner")
    if network.gate is None:
        hidden = _activate(graph, network.activation, hidden)
    else:
        gate = _activate(graph, network.activation, _map(graph, network.gate, read, network, "gate"))
        hidden = graph.apply("Mul", gate, hidden)
    return _add(graph, residual, x, _map(graph, network.outer, hidden, network, "outer"))


def _activate(graph: Graph, activation: Activation, x: Value) -> Value:
    match activation:
        case "relu":
            return graph.apply("Relu", x)
        case "gelu":  # x (1 + erf(x / sqrt(2))) / 2
            return _half(graph, x, graph.apply("Erf", graph.apply("Mul", x, graph.number(math.sqrt(0.5)))))
        case "gelu_tanh":  # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
            cube = graph.apply("Mul", graph.apply("Mul", graph.apply("Mul", x, x), x), graph.number(0.044715))
            inner = graph.apply("Mul", graph.apply("Add", x, cube), graph.number(math.sqrt(2 / math.pi)))
            return _half(graph, x, graph.apply("Tanh", inner))
        case "silu":
            return graph.apply("Mul", x, graph.apply("Sigmoid", x))
        case _:
            assert_never(activation)


def _half(graph: Graph, x: Value, gate: Value) -> Value:
    """X (1 + gate) / 2."""
    return graph.apply("Mul", graph.apply("Mul", x, graph.number(0.5)), graph.apply("Add", gate, graph.number(1)))
