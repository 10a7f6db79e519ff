"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section 3."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import AllowedTokens, LogitColumns, Mask, RaggedLayout
from transduce.layers import (
    Embedding,
    Past,
    PositionalEncoding,
    Routing,
    Stream,
    append_bias,
    join_routings,
    project_for_all,
)
from transduce.models.contract import (
    NO_ATTENTION,
    AttentionRequest,
    AttentionWeights,
    Decoded,
    LossSums,
    Step,
    Tokens,
    TrainableModel,
    Weights,
    choose_counted,
    fill_unread,
)
from transduce.models.stacks import DecoderLayer, EncoderLayer
from transduce.models.state import TransformerState


@final
@dataclass(frozen=True)
class Memory:
    """The encoder's output as a ragged batch, and those of its attention weights that were asked for, by layer.

    ``routings`` say where its mixtures of experts sent the symbols.
    """

    hidden: Float[Tensor, "tokens model"]
    layout: RaggedLayout
    attention: dict[int, Float[Tensor, "batch heads source source"]] = field(default_factory=dict)
    routings: tuple[Routing, ...] = ()


@final
class Transformer(TrainableModel):
    """The encoder-decoder Transformer; it keeps the contract of ``models.contract.Model``."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        # Section 3.4 shares one matrix three ways; a source with a vocabulary of its own has its own.
        own, scaled = config.source_vocab_size, config.scale_embedding
        self.embedding = Embedding(config.vocab_size, config.d_model, scaled=scaled)
        self.source_embedding = None if own is None else Embedding(own, config.d_model, scaled=scaled)
        self.projection = None if config.tied_projection else Embedding(config.vocab_size, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        numbers = count()  # of the dropouts, each its own
        self.encoder_positions = PositionalEncoding(config, next(numbers))
        self.decoder_positions = PositionalEncoding(config, next(numbers))
        self.encoder = nn.ModuleList(EncoderLayer(config, numbers) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, numbers) for _ in range(config.decoder_layers))
        final = config.final_norm
        self.encoder_norm = nn.LayerNorm(config.d_model, eps=config.norm_epsilon) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model, eps=config.norm_epsilon) if final else nn.Identity()

    @property
    def width(self) -> int:
        """d_model."""
        return self.config.d_model

    def layers(self) -> Iterable[nn.Module]:
        """Those of the encoder and of the decoder."""
        return (*self.encoder, *self.decoder)

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Memory:
        """Read the sources, which end with the end symbol."""
        layout = (source if self.config.source_end else source.without_ends()).layout()
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        places = layout.columns, layout.longest
        x = Stream(self.encoder_positions(embedding(layout.flatten(source.ids)), *places, layout.seeds))
        weights, routings = {}, []
        for number, layer in enumerate(cast(Iterable[EncoderLayer], self.encoder)):
            x = self.encoder_positions.again(x, *places) if number else x
            if attention.wants("encoder", number, len(self.encoder)):
                weights[number] = attention.choose(layer.self_weights(x, layout, self._window))
            x, routing = layer(x, layout, self._window)
            routings += [] if routing is None else [routing]
        return Memory(_finish(x, self.encoder_norm), layout, weights, tuple(routings))

    def decode(self, memory: Memory, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        layout = target.layout()
        places = layout.columns, layout.longest
        x = Stream(self.decoder_positions(self.embedding(layout.flatten(target.ids)), *places, layout.seeds))
        weights, routings = AttentionWeights(memory.attention), [*memory.routings]
        layers = list(self._decoder_layers)
        projected = project_for_all([each.cross_attention for each in layers], memory.hidden, memory.layout)
        for number, (layer, keys_values) in enumerate(zip(layers, projected, strict=True)):
            x = self.decoder_positions.again(x, *places) if number else x
            if attention.wants("decoder", number, len(self.decoder)):
                weights.decoder[number] = attention.choose(layer.self_weights(x, layout, self._window))
            if attention.wants("cross", number, len(self.decoder)):
                query = layout.pad(layer.memory_query(layer.attend_past(x, layout, self._window)))
                attended = layer.cross_attention.key_values(memory.layout.pad(memory.hidden))
                weights.cross[number] = attention.choose(
                    layer.memory_weights(query, attended, Mask(memory.layout.real))
                )
            x, routing = layer(x, memory.hidden, layout, memory.layout, self._window, keys_values)
            routings += [] if routing is None else [routing]
        return Decoded(_finish(x, self.decoder_norm), *join_routings(routings, layout), weights)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol: one for each row of the embedding matrix, or of one of the output's own."""
        return self.output.project(hidden, self.output_bias)

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        source, target = choose_counted(source, target, weights)
        decoded = self.decode(self.encode(source), target)
        hidden, weight = append_bias(decoded.hidden, self.output.weight, self.output_bias)
        smoothing = self.config.label_smoothing
        decoded = replace(decoded, hidden=hidden)
        return LossSums.of(decoded, weight, target, labels, smoothing=smoothing, weights=weights)

    def start(self, memory: Memory, beam: int, allowed: AllowedTokens | None = None) -> TransformerState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        hidden = memory.layout.pad(memory.hidden)
        attended = tuple(layer.cross_attention.key_values(hidden) for layer in self._decoder_layers)
        layers = zip(self._decoder_layers, attended, strict=True)
        past = tuple(layer.nothing_read(each, beam) for layer, each in layers)
        return replace(TransformerState.empty(attended, past, memory.layout.real, beam), allowed=allowed)

    def step(
        self, state: TransformerState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[TransformerState]:
        """Read one symbol in every row; of its attention, the encoder-decoder's can be had.

        Raises:
            ValueError: Another kind is asked for.
        """
        if attention.encoder or attention.decoder:
            raise ValueError("a step tells of the encoder-decoder attention alone: ask decode for the other kinds")
        hidden, after, weights = self._read(state, tokens, attention)
        # All of the vocabulary is scored: PyTorch has no product with columns that differ from batch to batch.
        columns = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(self.project(hidden), weights, after, columns)

    def _read(
        self,
        state: TransformerState,
        tokens: Int[Tensor, " rows"],
        attention: AttentionRequest,
    ) -> tuple[Float[Tensor, "rows model"], TransformerState, dict[int, Float[Tensor, "rows heads source"]]]:
        after = state.advance()
        places = after.positions(), after.width
        past_mask, memory_mask = after.past_mask(self._window), after.memory_mask()
        x = Stream(self.decoder_positions(self.embedding(fill_unread(tokens).unsqueeze(1)), *places))
        pasts: list[Past] = []
        weights = {}
        layers = zip(self._decoder_layers, state.past, state.memory, strict=True)
        for number, (layer, past, memory) in enumerate(layers):
            x = self.decoder_positions.again(x, *places) if number else x
            if attention.wants("cross", number, len(self.decoder)):
                query = layer.memory_query(layer.step_past(x, past, past_mask)[0])
                found = layer.memory_weights(query, memory, memory_mask).transpose(1, 2).flatten(0, 1)
                weights[number] = attention.choose(found)
            x, newer = layer.step(x, past, past_mask, memory, memory_mask)
            pasts.append(newer)
        return _finish(x, self.decoder_norm).squeeze(1), replace(after, past=tuple(pasts)), weights

    @property
    def _window(self) -> int | None:
        """How far self-attention sees to each side: a window of r positions is centred (section 4)."""
        return None if self.config.attention_window is None else self.config.attention_window // 2

    @property
    def output(self) -> Embedding:
        """The matrix that scores the next symbol."""
        return self.embedding if self.projection is None else self.projection

    @property
    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        # nn.ModuleList is not generic.
        return cast(Iterable[DecoderLayer], self.decoder)


def _finish(x: Stream, norm: nn.Module) -> Float[Tensor, "*positions model"]:
    """What a stack hands on."""
    return x.normalize(norm)[1] if isinstance(norm, nn.LayerNorm) else x.settle()
