"""ByteNet, "Neural Machine Translation in Linear Time" (Kalchbrenner et al. 2017), for translation."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from typing import cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import ConvolutionalConfig
from transduce.kernels import AllowedTokens, LogitColumns, Neighbours, RaggedLayout
from transduce.layers import Convolution, Dropout, Embedding, append_bias
from transduce.layers.convolution import causal, centred, draw_linear, look_around
from transduce.layers.linear import Linear
from transduce.models.contract import (
    NO_ATTENTION,
    AttentionRequest,
    Decoded,
    LossSums,
    Step,
    Tokens,
    TrainableModel,
    Weights,
    fill_unread,
)
from transduce.models.convolutional_state import ConvolutionalState


@final
@dataclass(frozen=True)
class Memory:
    """The encoder's output as a ragged batch: |t^| columns of each source (``ByteNet.encode``)."""

    hidden: Float[Tensor, "tokens model"]
    layout: RaggedLayout


@final
class ResidualBlock(nn.Module):
    """x' = x + Dropout(W_3 r(Convolution(r(W_1 r(x))))) with r = ReLU(LayerNorm(.)): 2 d to d, k symbols, d to 2 d.

    Weights begin as N(0, 2 / inputs): half of what a ReLU lets through keeps the variance (He et al. 2015).
    """

    def __init__(self, config: ConvolutionalConfig, offsets: tuple[int, ...], number: int) -> None:
        super().__init__()
        d = config.channels
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (2 * d, d, d))
        self.reduce = _make(2 * d, d)
        self.convolution = Convolution(_make(len(offsets) * d, d), d, offsets)
        self.expand = _make(d, 2 * d)
        self.dropout = Dropout(config.dropout, number)

    def forward(
        self, x: Float[Tensor, "tokens model"], neighbours: Neighbours, seeds: Int[Tensor, " tokens"] | None
    ) -> Float[Tensor, "tokens model"]:
        """All positions of a ragged batch."""
        read = self._before(x)
        result: Tensor = x + self.dropout(self._behind(self.convolution(read, neighbours)), seeds)
        return result

    def step(
        self, x: Float[Tensor, "rows model"], columns: Float[Tensor, "kept rows inner"], clock: int
    ) -> Float[Tensor, "rows model"]:
        """The same of one more symbol in every row of the decoder."""
        return x + self._behind(self.convolution.step(self._before(x), columns, clock))

    def _before(self, x: Tensor) -> Tensor:
        return F.relu(self.norms[1](self.reduce(F.relu(self.norms[0](x)))))

    def _behind(self, x: Tensor) -> Tensor:
        expanded: Tensor = self.expand(F.relu(self.norms[2](x)))
        return expanded


@final
class ByteNet(TrainableModel):
    """The decoder on top of the encoder, column by column; it keeps the contract of ``models.contract.Model``.

    The i-th step of the decoder reads the symbol before it and the i-th column of the encoder's output: it has no
    attention. Both stacks' dilations double from block to block, and begin again.
    """

    config: ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        width = self.width
        self.embedding = Embedding(config.vocab_size, width)
        own = config.source_vocab_size or config.vocab_size
        self.source_embedding = None if config.shared_embedding else Embedding(own, width)
        numbers = count()  # of the dropouts, each its own
        self.encoder = _blocks(config, config.encoder_blocks, numbers, masked=False)
        self.decoder = _blocks(config, config.decoder_blocks, numbers, masked=True)
        # What the decoder reads: [embedding; column], as one vector.
        self.join = draw_linear(2 * width, width, math.sqrt(1 / (2 * width)))
        self.norm = nn.LayerNorm(width)
        self.output = _make(width, width)
        self.output_bias: nn.Parameter | None = None
        self.projection: nn.Module | None = None
        if config.tied_projection:
            self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        else:
            self.projection = draw_linear(width, config.vocab_size, math.sqrt(1 / width))

    @property
    def width(self) -> int:
        """2 d."""
        return 2 * self.config.channels

    def layers(self) -> Iterable[nn.Module]:
        """The blocks of the encoder and of the decoder."""
        return (*self.encoder, *self.decoder)

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Memory:
        """Read the sources, which end with the end symbol, as |t^| = a |s| + b columns each, at least |s|.

        |t^| is an estimate of the target's length; the columns behind the source's symbols are read as zeros.
        """
        layout = source.layout()
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        lengths = self.unfolded(layout.lengths)
        longest = int(lengths.max()) if len(lengths) else layout.longest
        wide = RaggedLayout.of(lengths, longest, source.ids.device, layout.row_seeds)
        padded = layout.pad(embedding(layout.flatten(source.ids)))
        x = wide.flatten(F.pad(padded, (0, 0, 0, longest - layout.longest)))
        around = look_around((block.convolution for block in _of(self.encoder)), wide)
        for block in _of(self.encoder):
            x = block(x, around[block.convolution.offsets], wide.seeds)
        return Memory(x, wide)

    def decode(self, memory: Memory, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol.

        Where a target goes beyond |t^|, the encoder's columns are zero.
        """
        layout = target.layout()
        columns = memory.layout.pad(memory.hidden)
        columns = F.pad(columns, (0, 0, 0, layout.longest - columns.shape[1]))  # cuts off what no target reaches
        x = self._read(layout.flatten(target.ids), layout.flatten(columns))
        around = look_around((block.convolution for block in _of(self.decoder)), layout)
        for block in _of(self.decoder):
            x = block(x, around[block.convolution.offsets], layout.seeds)
        return Decoded(self._finish(x))

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        if self.projection is None:
            return self.embedding.project(hidden, self.output_bias)
        result: Tensor = self.projection(hidden)
        return result

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        decoded = self.decode(self.encode(source), target)
        # Only a model that is ready for use has maps of another kind.
        plain = cast(Linear | None, self.projection)
        weight, bias = (self.embedding.weight, self.output_bias) if plain is None else (plain.weight, plain.bias)
        hidden, weight = append_bias(decoded.hidden, weight, bias)
        smoothing = self.config.label_smoothing
        decoded = replace(decoded, hidden=hidden)
        return LossSums.of(decoded, weight, target, labels, smoothing=smoothing, weights=weights)

    def start(self, memory: Memory, beam: int, allowed: AllowedTokens | None = None) -> ConvolutionalState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        columns = memory.layout.pad(memory.hidden)
        convolutions = [block.convolution for block in _of(self.decoder)]
        lengths = memory.layout.real.sum(dim=1)
        return ConvolutionalState.empty((columns,), lengths, convolutions, beam, allowed)

    def step(
        self, state: ConvolutionalState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[ConvolutionalState]:
        """Read one symbol in every row; there is no attention to tell of."""
        (encoded,) = state.memory
        place = state.lengths.clamp(max=encoded.shape[1] - 1)
        column = encoded[torch.arange(len(place), device=place.device), place]
        column = column * (state.lengths < state.sources).unsqueeze(1)
        x = self._read(fill_unread(tokens), column.repeat_interleave(state.beam, dim=0))
        for block, columns in zip(_of(self.decoder), state.columns, strict=True):
            x = block.step(x, columns, state.clock)
        columns_ = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(self.project(self._finish(x)), {}, state.advance(), columns_)

    def unfolded(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """|t^| of each |s|, rounded up; what rounding a float adds to a whole number does not count."""
        estimates = lengths.double() * self.config.unfold_factor + self.config.unfold_extra
        return torch.maximum((estimates - 1e-6).ceil().long(), lengths)

    def _read(self, ids: Tensor, columns: Tensor) -> Tensor:
        joined: Tensor = self.join(torch.cat([self.embedding(ids), columns], dim=1))
        return joined

    def _finish(self, x: Tensor) -> Tensor:
        return F.relu(self.output(F.relu(self.norm(x))))


def _make(inputs: int, outputs: int) -> Linear:
    return draw_linear(inputs, outputs, math.sqrt(2 / inputs))


def _blocks(config: ConvolutionalConfig, number: int, numbers: Iterator[int], *, masked: bool) -> nn.ModuleList:
    dilations = islice(cycle(config.dilations), number)
    offsets = causal if masked else centred
    return nn.ModuleList(ResidualBlock(config, offsets(config.kernel_width, r), next(numbers)) for r in dilations)


def _of(blocks: nn.ModuleList) -> Iterable[ResidualBlock]:
    # nn.ModuleList is not generic.
    return cast(Iterable[ResidualBlock], blocks)
