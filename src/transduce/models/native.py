"""A Transformer prepacked for decoding on CPUs: a few large operations in C++ where the plain one has hundreds."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.kernels import (
    AllowedTokens,
    Choices,
    FlatBeams,
    Format,
    LogitColumns,
    PrepackedMatrix,
    encode,
    remember,
    search,
    step,
)
from transduce.layers import PositionalEncoding
from transduce.models.contract import NO_ATTENTION, AttentionRequest, Decoded, LossSums, Step, Tokens, Weights
from transduce.models.native_plain import restore
from transduce.models.native_stacks import native_decoder, native_encoder
from transduce.models.native_state import NativeState, ShortlistedProjection
from transduce.models.prepacking import NumberSource, Prepacking
from transduce.models.transformer import Memory, Transformer
from transduce.models.unfilled import Unfilled

# Of a table of positions, at least: longer sequences have one of their own.
_POSITIONS: Final = 512


@final
@dataclass(frozen=True)
class _Positions:
    """The vectors of positions: those of the first are shared by all, and never change."""

    encoding: PositionalEncoding
    first: Float32[Tensor, "first model"] | None

    @classmethod
    def of(cls, encoding: PositionalEncoding, config: TransformerConfig, source: NumberSource) -> "_Positions":
        # One of its own: a table that is made later must not have been rounded with the rest of the plain model.
        with Unfilled():
            own = PositionalEncoding(config).eval().requires_grad_(False)
        for parameter, place in zip(encoding.parameters(), own.parameters(), strict=True):
            place.data = source.numbers(parameter).clone()
        return cls(own, own.vectors(config.longest or _POSITIONS))

    def up_to(self, longest: int) -> Float32[Tensor, "_ model"] | None:
        """The vectors of so many positions and more, or None where positions have none."""
        if self.first is None or longest <= len(self.first):
            return self.first
        return self.encoding.vectors(2 * longest)


@final
class NativeTransformer:
    """What ``model`` computes, with its matrices in one number format; it keeps the contract of ``contract.Model``.

    Sources are read and outputs written by the C++ kernels. What is done with known targets is left to the same model
    in PyTorch's operations, which is made of the same matrices when it is first asked for. Uses ``model`` up, layer by
    layer. Threads share it: nothing of it changes, and what grows with an output belongs to the state.

    ``source`` gives the numbers in that format where they are not to be made of the model's own, which then needs no
    storage.
    """

    def __init__(self, model: Transformer, format_: Format, source: NumberSource | None = None) -> None:
        source = Prepacking(format_) if source is None else source
        self.config, self.width, self.format = model.config, model.width, format_
        # Keys and values are read again for every symbol: half the bytes, where products are rounded as much anyway.
        self._kept = torch.float32 if format_ == "float32" else torch.bfloat16
        self._encoder_positions = _Positions.of(model.encoder_positions, model.config, source)
        self._decoder_positions = _Positions.of(model.decoder_positions, model.config, source)
        self._encoder, self._decoder = native_encoder(model, source), native_decoder(model, source)
        self._projection = source.matrix([model.output.weight], [model.output_bias])

    @cached_property
    def _plain(self) -> Transformer:
        # Of two threads that come here at once, one's is forgotten.
        positions = self._encoder_positions.encoding, self._decoder_positions.encoding
        return restore(self.config, (self._encoder, self._decoder), positions, self._projection)

    @property
    def bytes_of_a_step(self) -> int:
        """What is read of the weights in each step: the decoder's matrices, and what the symbols are scored with."""
        return self._projection.panels.nbytes + sum(each.bytes_of_a_step for each in self._decoder.layers)

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Memory:
        """Read the sources, which end with the end symbol."""
        if attention.encoder:
            memory = self._plain.encode(source, attention=attention)
            return replace(memory, hidden=memory.hidden.float())
        layout = (source if self.config.source_end else source.without_ends()).layout()
        positions = self._encoder_positions.up_to(layout.longest)
        return Memory(encode(self._encoder, positions, layout.flatten(source.ids), layout), layout)

    def decode(self, memory: Memory, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        hidden = memory.hidden.to(self._plain.embedding.weight.dtype)
        return self._plain.decode(replace(memory, hidden=hidden), target, attention=attention)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        return self._plain.project(hidden)

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        return self._plain.forward(source, target, labels, weights)

    def start(self, memory: Memory, beam: int, allowed: AllowedTokens | None = None) -> NativeState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        remembered = remember(self._decoder, memory.hidden, memory.layout, self._kept)
        positions = self._decoder_positions.up_to(1)
        state = NativeState.empty(remembered, self.config, memory.layout.longest, beam)
        return replace(state, allowed=allowed, positions=positions)

    def step(
        self, state: NativeState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[NativeState]:
        """Read one symbol in every row; of its attention, the last layer's encoder-decoder attention can be had.

        Raises:
            ValueError: Other layers or kinds are asked for.
        """
        layers = self.config.decoder_layers
        wanted = () if attention is NO_ATTENTION else range(layers)  # it comes in almost every step
        asked = [number for number in wanted if attention.wants("cross", number, layers)]
        if attention.encoder or attention.decoder or asked not in ([], [layers - 1]):
            raise ValueError(
                "a step in C++ tells of the last layer's encoder-decoder attention alone: ask decode, or make the "
                "step with the plain model"
            )
        weights = state.weights_buffer(self.config.heads) if asked else None
        logits, after = self._read(state, tokens, weights)
        found = {} if weights is None else {layers - 1: attention.choose(weights[:, :, : state.source])}
        return Step(logits, found, after, _columns(after))

    @property
    def vocabulary(self) -> int:
        """How many symbols outputs are made of."""
        return self.config.vocab_size

    def search(
        self, state: NativeState, beams: FlatBeams, seconds: float, choices: Choices | None = None
    ) -> NativeState:
        """Rounds of a search, until so many seconds are over or all outputs are certain; with choices, one."""
        state, projection = self._make_room(state)
        logits, columns = state.scores(projection.outputs), _columns(state)
        known = self._decoder, projection, state.buffers
        state.width += search(*known, beams, logits, columns, state.room, seconds, choices)
        return state

    def _read(
        self, state: NativeState, tokens: Int[Tensor, " rows"], weights: Tensor | None = None
    ) -> tuple[Float[Tensor, "rows columns"], NativeState]:
        state, projection = self._make_room(state)
        logits = state.scores(projection.outputs)
        step(self._decoder, projection, state.buffers, tokens.contiguous(), logits, weights)
        return logits, state.advance()

    def _make_room(self, state: NativeState) -> tuple[NativeState, PrepackedMatrix]:
        """The state with room for another symbol of each row, and what scores the next ones."""
        state = state.with_capacity()
        if state.allowed is not None and state.shortlisted is None:
            state.shortlisted = ShortlistedProjection.of(self._projection, state.allowed)
        if state.positions is not None and state.width >= len(state.positions):
            state.positions = self._decoder_positions.up_to(state.width + 1)
        return state, self._projection if state.shortlisted is None else state.shortlisted.matrix


def _columns(state: NativeState) -> LogitColumns | None:
    """What a step's scores are of, where the state was told what is allowed."""
    if state.allowed is None or state.shortlisted is None:
        return None
    return LogitColumns(state.allowed, state.shortlisted.columns)
