"""ConvS2S, "Convolutional Sequence to Sequence Learning" (Gehring et al. 2017)."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import ConvolutionalConfig
from transduce.kernels import AllowedTokens, LogitColumns, Neighbours, RaggedLayout
from transduce.layers import Convolution, Dropout, append_bias
from transduce.layers.convolution import NormalizedLinear, causal, centred, draw_map, gate, look_around, scale_gradient
from transduce.layers.multi_step_attention import HALF, Attended, MultiStepAttention, look_up
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
    fill_unread,
)
from transduce.models.convolutional_state import ConvolutionalState

_EMBEDDING_STD: Final = 0.1  # section 3.5


@final
@dataclass(frozen=True)
class Memory:
    """What the attention compares with and what it sums up (``Attended``), as a ragged batch."""

    keys: Float[Tensor, "tokens embedding"]
    values: Float[Tensor, "tokens embedding"]
    layout: RaggedLayout

    def attended(self) -> Attended:
        """The same, padded."""
        return Attended(self.layout.pad(self.keys), self.layout.pad(self.values), self.layout.real)


@final
class Positions(nn.Module):
    """Dropout(e + P[position]): learned positions are added to embeddings, both from N(0, 0.1^2)."""

    def __init__(self, config: ConvolutionalConfig, number: int) -> None:
        super().__init__()
        self.table = _embedding(config.max_positions, config.embedding_width)
        self.dropout = Dropout(config.dropout, number)

    def forward(
        self,
        embedded: Float[Tensor, "tokens embedding"],
        positions: Int[Tensor, " tokens"],
        longest: int,
        seeds: Int[Tensor, " tokens"] | None = None,
    ) -> Float[Tensor, "tokens embedding"]:
        """All positions are below ``longest``.

        Raises:
            ValueError: There are more positions than were learned.
        """
        if longest > self.table.num_embeddings:
            most = self.table.num_embeddings
            raise ValueError(f"a sequence of {longest:,} symbols: this model has learned max_positions = {most:,}")
        result: Tensor = self.dropout(embedded + self.table(positions), seeds)
        return result


@final
class Block(nn.Module):
    """x' = (A(GLU(Convolution(Dropout(x)))) + x) sqrt(1/2); A, the decoder's attention, is not in the encoder.

    Where its channels are others than those of x, a linear map of x is added in its place.
    """

    def __init__(
        self,
        inputs: int,
        channels: int,
        offsets: tuple[int, ...],
        config: ConvolutionalConfig,
        number: int,
        *,
        attends: bool,
    ) -> None:
        super().__init__()
        normalized, window = config.weight_normalization, len(offsets) * inputs
        self.dropout = Dropout(config.dropout, number)
        # A gate of variance-1 inputs has variance 1/4, of what dropout scales 1/p times as much (section 3.5).
        std = math.sqrt(4 * (1 - config.dropout) / window)
        map_ = draw_map(window, 2 * channels, std=std, normalized=normalized)
        self.convolution = Convolution(map_, inputs, offsets)
        std = math.sqrt(1 / inputs)
        self.match = None if inputs == channels else draw_map(inputs, channels, std=std, normalized=normalized)
        self.attention = (
            MultiStepAttention(channels, config.embedding_width, normalized=normalized) if attends else None
        )

    def forward(
        self,
        x: Float[Tensor, "tokens inputs"],
        neighbours: Neighbours,
        layout: RaggedLayout,
        embedded: Float[Tensor, "tokens embedding"] | None = None,
        attended: Attended | None = None,
    ) -> tuple[Float[Tensor, "tokens channels"], Float[Tensor, "batch length source"] | None]:
        """All positions, and how the attention weighs the source; the decoder's has what it embedded and attends to."""
        hidden = gate(self.convolution(self.dropout(x, layout.seeds), neighbours))
        weights = None
        if self.attention is not None and embedded is not None and attended is not None:
            found, weights = look_up(layout.pad(self.attention.ask(hidden, embedded)), attended)
            hidden = self.attention.join(hidden, layout.flatten(found))
        return self._add(hidden, x), weights

    def step(
        self,
        x: Float[Tensor, "rows inputs"],
        columns: Float[Tensor, "kept rows inputs"],
        clock: int,
        embedded: Float[Tensor, "rows embedding"],
        attended: Attended,
    ) -> tuple[Float[Tensor, "rows channels"], Float[Tensor, "rows source"]]:
        """The same of one more symbol in every row of the decoder."""
        assert self.attention is not None
        hidden = gate(self.convolution.step(x, columns, clock))
        query = self.attention.ask(hidden, embedded).view(*attended.keys.shape[:1], -1, attended.keys.shape[2])
        found, weights = look_up(query, attended)
        return self._add(self.attention.join(hidden, found.flatten(0, 1)), x), weights.flatten(0, 1)

    def _add(self, hidden: Tensor, x: Tensor) -> Tensor:
        return (hidden + (x if self.match is None else self.match(x))) * HALF


@final
class ConvS2S(TrainableModel):
    """The encoder-decoder of gated convolutions; it keeps the contract of ``models.contract.Model``."""

    config: ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        width, normalized = config.embedding_width, config.weight_normalization
        self.embedding = _embedding(config.vocab_size, width)
        own = config.source_vocab_size or config.vocab_size
        self.source_embedding = None if config.shared_embedding else _embedding(own, width)
        numbers = count()  # of the dropouts, each its own
        self.encoder_positions = Positions(config, next(numbers))
        self.decoder_positions = Positions(config, next(numbers))
        self.encoder, widest = _blocks(config, numbers, attends=False)
        self.encoder_input = self._widen(config.encoder_convolutions[0][0])
        self.encoder_output = draw_map(widest, width, std=math.sqrt(1 / widest), normalized=normalized)
        self.decoder, widest = _blocks(config, numbers, attends=True)
        self.decoder_input = self._widen(config.decoder_convolutions[0][0])
        output = config.output_width
        self.decoder_output = draw_map(widest, output, std=math.sqrt(1 / widest), normalized=normalized)
        self.output_dropout = Dropout(config.dropout, next(numbers))
        self.output_bias: nn.Parameter | None = None
        self.projection: nn.Module | None = None
        if config.tied_projection:
            self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        else:
            std = math.sqrt((1 - config.dropout) / output)
            self.projection = draw_map(output, config.vocab_size, std=std, normalized=normalized)

    @property
    def width(self) -> int:
        """That of the hidden states from which the next symbol is predicted."""
        return self.config.output_width

    def layers(self) -> Iterable[nn.Module]:
        """Those of the encoder and of the decoder."""
        return (*self.encoder, *self.decoder)

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Memory:
        """Read the sources, which end with the end symbol."""
        layout = source.layout()
        symbols = (self.source_embedding or self.embedding)(layout.flatten(source.ids))
        embedded = self.encoder_positions(symbols, layout.columns, layout.longest, layout.seeds)
        x = self.encoder_input(embedded)
        around = look_around((block.convolution for block in _of(self.encoder)), layout)
        for block in _of(self.encoder):
            x, _ = block(x, around[block.convolution.offsets], layout)
        # Section 3.5: the encoder is told its gradient by every attention of the decoder; its embeddings are not.
        keys = scale_gradient(self.encoder_output(x), 1 / (2 * len(self.decoder)))
        return Memory(keys, (keys + embedded) * HALF, layout)

    def decode(self, memory: Memory, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        layout = target.layout()
        symbols = self.embedding(layout.flatten(target.ids))
        embedded = self.decoder_positions(symbols, layout.columns, layout.longest, layout.seeds)
        x = self.decoder_input(embedded)
        around = look_around((block.convolution for block in _of(self.decoder)), layout)
        attended = memory.attended()
        weights = AttentionWeights()
        for number, block in enumerate(_of(self.decoder)):
            x, found = block(x, around[block.convolution.offsets], layout, embedded, attended)
            if attention.wants("cross", number, len(self.decoder)):
                weights.cross[number] = attention.choose(found.unsqueeze(1))
        hidden = self.output_dropout(self.decoder_output(x), layout.seeds)
        return Decoded(hidden, attention=weights)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        if self.projection is None:
            return F.linear(hidden, self.embedding.weight, self.output_bias)
        result: Tensor = self.projection(hidden)
        return result

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        decoded = self.decode(self.encode(source), target)
        hidden, weight = append_bias(decoded.hidden, *self._output())
        smoothing = self.config.label_smoothing
        decoded = replace(decoded, hidden=hidden)
        return LossSums.of(decoded, weight, target, labels, smoothing=smoothing, weights=weights)

    def start(self, memory: Memory, beam: int, allowed: AllowedTokens | None = None) -> ConvolutionalState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        attended = memory.attended()
        convolutions = [block.convolution for block in _of(self.decoder)]
        lengths = attended.real.sum(dim=1)
        return ConvolutionalState.empty((attended.keys, attended.values), lengths, convolutions, beam, allowed)

    def step(
        self, state: ConvolutionalState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[ConvolutionalState]:
        """Read one symbol in every row; of its attention, that of any decoder layer can be had.

        Raises:
            ValueError: Another kind is asked for, or there are more positions than were learned.
        """
        if attention.encoder or attention.decoder:
            raise ValueError("there is the encoder-decoder attention alone: this model has no other kinds")
        longest = int(state.lengths.max()) + 1 if len(state.lengths) else 0
        embedded = self.decoder_positions(self.embedding(fill_unread(tokens)), state.by_row(state.lengths), longest)
        x = self.decoder_input(embedded)
        keys, values = state.memory
        real = torch.arange(keys.shape[1], device=keys.device) < state.sources.unsqueeze(1)
        attended = Attended(keys, values, real)
        weights = {}
        for number, (block, columns) in enumerate(zip(_of(self.decoder), state.columns, strict=True)):
            x, found = block.step(x, columns, state.clock, embedded, attended)
            if attention.wants("cross", number, len(self.decoder)):
                weights[number] = attention.choose(found.unsqueeze(1))
        columns_ = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(self.project(self.decoder_output(x)), weights, state.advance(), columns_)

    def _widen(self, channels: int) -> nn.Module:
        width, dropout = self.config.embedding_width, self.config.dropout
        std = math.sqrt((1 - dropout) / width)
        return draw_map(width, channels, std=std, normalized=self.config.weight_normalization)

    def _output(self) -> tuple[Tensor, Tensor | None]:
        match self.projection:
            case None:
                return self.embedding.weight, self.output_bias
            case NormalizedLinear() as normalized:
                return normalized.weight(), normalized.bias
            case plain:
                linear = cast(nn.Linear, plain)
                return linear.weight, linear.bias


def _embedding(rows: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, std=_EMBEDDING_STD)
    return embedding


def _blocks(config: ConvolutionalConfig, numbers: Iterator[int], *, attends: bool) -> tuple[nn.ModuleList, int]:
    """The layers of a side, and the channels of the last one."""
    convolutions = config.decoder_convolutions if attends else config.encoder_convolutions
    inputs = convolutions[0][0]
    blocks = nn.ModuleList()
    for channels, kernel, layers in convolutions:
        offsets = causal(kernel) if attends else centred(kernel)
        for _ in range(layers):
            blocks.append(Block(inputs, channels, offsets, config, next(numbers), attends=attends))
            inputs = channels
    return blocks, inputs


def _of(blocks: nn.ModuleList) -> Iterable[Block]:
    # nn.ModuleList is not generic.
    return cast(Iterable[Block], blocks)
