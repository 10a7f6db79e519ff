"""A folder of ONNX models in the layout of Hugging Face's ``optimum`` and of ``transformers.js``."""

from pathlib import Path
from typing import Any, Final

import torch

from transduce.bundle import Bundle
from transduce.config import BadInputError, SpecialIds
from transduce.config.disk import flush_folder
from transduce.interop.json_files import write_json
from transduce.interop.marianmt import CONFIG
from transduce.interop.marianmt_export import (
    ACTIVATIONS,
    generation_settings,
    write_tokenizers,
)
from transduce.interop.marianmt_generation import GENERATION
from transduce.interop.onnx_graph import Graph, Shape, Value, library
from transduce.interop.onnx_transformer import POSITIONS, Cache, KeyValues, decode, encode, width
from transduce.models import Transformer

ENCODER: Final = "encoder_model.onnx"
DECODER: Final = "decoder_model.onnx"
DECODER_WITH_PAST: Final = "decoder_with_past_model.onnx"
MERGED: Final = "decoder_model_merged.onnx"
# A file is one protocol buffer, which cannot be larger.
_MOST_BYTES: Final = 2**31 - 2**20
# Fields that the graph is not written for, the values that it is written for, and what the others mean.
_SAYABLE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "positions": (("sinusoidal", "learned", "none"), "relative positions"),
    "compatibility": (("scaled_dot_product", "dot_product", "multiplicative"), "scores that are no products"),
    "feed_forward": (("mlp", "gated"), "attention over parameters, or a mixture of experts"),
    "decoder_self_attention": (("multi_head",), "average attention"),
    "source_end": ((True,), "sources without an end symbol"),
}


def export_onnx(bundle: Bundle, folder: Path) -> None:
    """Write an encoder and three decoders to an empty folder, with configuration and tokenizer.

    ``decoder_model`` reads a target from its beginning, ``decoder_with_past_model`` goes on with the keys and values
    that it gave, and ``decoder_model_merged`` is both, chosen by ``use_cache_branch``. Batches are padded, and of any
    size. Names and shapes are those of a MarianMT model that ``optimum`` exports.

    Raises:
        BadInputError: The graph is not written for such a model, or it is too large for a file of this format.
        TransduceError: The package ``onnx`` is not installed.
    """
    model = bundle.model
    if not isinstance(model, Transformer):
        raise BadInputError(
            f"ONNX graphs are not written for architecture {bundle.config.architecture!r}: only our own engine runs it"
        )
    _check(model)
    with torch.no_grad():
        for name, graph in _files(model):
            library().save_model(graph.model(name.removesuffix(".onnx")), str(folder / name))
    write_json(folder / CONFIG, _config(model, bundle.tokenizers.special))
    write_json(folder / GENERATION, generation_settings(bundle.generation, model.config.longest or POSITIONS))
    write_tokenizers(bundle.tokenizers, folder)
    flush_folder(folder)


def _check(model: Transformer) -> None:
    unsayable = [
        f"{name} = {getattr(model.config, name)!r} ({meaning})"
        for name, (values, meaning) in _SAYABLE.items()
        if getattr(model.config, name) not in values
    ]
    if unsayable:
        raise BadInputError(
            f"ONNX graphs are not written for {' nor '.join(unsayable)}: only our own engine runs this model"
        )
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size > _MOST_BYTES:
        raise BadInputError(f"an ONNX file holds 2 GiB at most, and this model's weights in float32 are {size:,} bytes")


def _files(model: Transformer) -> list[tuple[str, Graph]]:
    return [
        (ENCODER, _encoder(model)),
        (DECODER, _decoder(model)),
        (DECODER_WITH_PAST, _decoder_with_past(model)),
        (MERGED, _merged(model)),
    ]


def _encoder(model: Transformer) -> Graph:
    graph = Graph()
    ids = graph.input("input_ids", ("batch_size", "encoder_sequence_length"), "INT64")
    symbols = graph.input("attention_mask", ("batch_size", "encoder_sequence_length"), "INT64")
    graph.output(encode(graph, model, ids, symbols), "last_hidden_state", _memory_shape(model))
    return graph


def _decoder(model: Transformer) -> Graph:
    graph = Graph()
    symbols, ids = _decoder_inputs(graph)
    memory = graph.input("encoder_hidden_states", _memory_shape(model))
    logits, caches = decode(graph, model, ids, memory, symbols, None)
    _give(graph, model, logits, caches, with_memory=True)
    return graph


def _decoder_with_past(model: Transformer) -> Graph:
    graph = Graph()
    symbols, ids = _decoder_inputs(graph)
    logits, after = decode(graph, model, ids, None, symbols, _cache_inputs(graph, model))
    _give(graph, model, logits, after, with_memory=False)
    return graph


def _merged(model: Transformer) -> Graph:
    graph = Graph()
    symbols, ids = _decoder_inputs(graph)
    memory = graph.input("encoder_hidden_states", _memory_shape(model))
    caches = _cache_inputs(graph, model)
    going_on = graph.input("use_cache_branch", (1,), "BOOL")
    then, otherwise = Graph(graph.weights), Graph(graph.weights)
    for branch, known in ((then, caches), (otherwise, None)):
        logits, after = decode(branch, model, ids, memory, symbols, known)
        _give(branch, model, logits, after, with_memory=True)
    graph.choose(going_on, then, otherwise)
    return graph


def _decoder_inputs(graph: Graph) -> tuple[Value, Value]:
    symbols = graph.input("encoder_attention_mask", ("batch_size", "encoder_sequence_length"), "INT64")
    return symbols, graph.input("input_ids", ("batch_size", "decoder_sequence_length"), "INT64")


def _cache_inputs(graph: Graph, model: Transformer) -> list[Cache]:
    shapes = _cache_shapes(model, "past_decoder_sequence_length")
    return [
        Cache(
            *(
                KeyValues(*(graph.input(f"past_key_values.{layer}.{of}.{part}", shape) for part in ("key", "value")))
                for of, shape in shapes.items()
            )
        )
        for layer in range(len(model.decoder))
    ]


def _give(graph: Graph, model: Transformer, logits: Value, caches: list[Cache], *, with_memory: bool) -> None:
    """The outputs: logits, and each layer's keys and values, those of the memory where they are new."""
    size = model.config.vocab_size
    graph.output(logits, "logits", ("batch_size", "decoder_sequence_length", size))
    shapes = _cache_shapes(model, "decoder_sequence_length_so_far")
    for layer, cache in enumerate(caches):
        for of, kept in (("decoder", cache.past), ("encoder", cache.memory)):
            if of == "decoder" or with_memory:
                graph.output(kept.key, f"present.{layer}.{of}.key", shapes[of])
                graph.output(kept.value, f"present.{layer}.{of}.value", shapes[of])


def _memory_shape(model: Transformer) -> Shape:
    return ("batch_size", "encoder_sequence_length", model.width)


def _cache_shapes(model: Transformer, read: str) -> dict[str, Shape]:
    heads = model.config.heads
    lengths = {"decoder": read, "encoder": "encoder_sequence_length_out"}
    return {of: ("batch_size", heads, length, width(model)) for of, length in lengths.items()}


def _config(model: Transformer, special: SpecialIds) -> dict[str, object]:
    """What such runtimes read sizes and special symbols from, in MarianMT's words; they compute what the graphs say."""
    config = model.config
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        "num_hidden_layers": config.encoder_layers,
        **{f"{stack}_layers": getattr(config, f"{stack}_layers") for stack in ("encoder", "decoder")},
        **{f"{stack}_attention_heads": config.heads for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": config.d_ff for stack in ("encoder", "decoder")},
        "activation_function": ACTIVATIONS[config.activation],
        "vocab_size": config.source_vocab_size or config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.source_vocab_size is None,
        "max_position_embeddings": config.longest or POSITIONS,
        "scale_embedding": model.embedding.scale != 1,
        "use_cache": True,
        **_special_ids(special),
    }


def _special_ids(special: SpecialIds) -> dict[str, int]:
    return {
        "pad_token_id": special.pad,
        "bos_token_id": special.begin,
        "eos_token_id": special.end,
        "decoder_start_token_id": special.begin,
    }
