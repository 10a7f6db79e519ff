"""Recurrent encoder-decoders: what the Transformer is measured against (Table 2)."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count
from typing import assert_never, cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import RecurrentConfig
from transduce.kernels import AllowedTokens, LogitColumns, has_lstm, maps_rows
from transduce.layers import Dropout, Embedding, Routing, append_bias, join_routings
from transduce.layers.reading_order import Direction, ReadingOrder
from transduce.layers.recurrent_stack import Flow, RecurrentStackLayer
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
from transduce.models.recurrent_decoder import Memory, RecurrentDecoder
from transduce.models.recurrent_state import RecurrentState


@final
class RecurrentModel(TrainableModel):
    """Layers of LSTM or GRU cells that read the source, and layers that write the target; it keeps the contract.

    Its attention, where it has one, is one layer with one head. Under autocast, the C++ kernels multiply numbers of the
    shorter format where their products of it are the fastest, and sum up and remember in the weights' own. What these
    do not compute is in that alone, but for the scores of the next symbol.
    """

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.embedding_size)
        own = config.source_vocab_size
        self.source_embedding = None if own is None else Embedding(own, config.embedding_size)
        self.projection = None if config.tied_projection else Embedding(config.vocab_size, config.readout_size)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        numbers = count()  # of the dropouts, each its own
        self.source_dropout = Dropout(config.embedding_dropout, next(numbers))
        self.target_dropout = Dropout(config.embedding_dropout, next(numbers))
        self.encoder = nn.ModuleList(_make_stack(config, begins, numbers) for begins in _directions(config))
        self.decoder = RecurrentDecoder(config, numbers)

    @property
    def width(self) -> int:
        """That of the readout, which scores the next symbol."""
        return self.config.readout_size

    def layers(self) -> Iterable[nn.Module]:
        """Those of the encoder, and the decoder, whose loop goes through all of it."""
        return (*(layer for stack in self._stacks for layer in stack), self.decoder)

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Memory:
        """Read the sources, which end with the end symbol."""
        layout = source.layout()
        order = ReadingOrder(layout)
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        x = self.source_dropout(embedding(layout.flatten(source.ids)), layout.seeds)
        outputs, last = [], []
        routings: list[Routing] = []
        with self._format(x):
            for stack in self._stacks:
                flow, state = Flow(x), x
                for layer in stack:
                    flow, state, routing = layer(flow, order)
                    routings += [] if routing is None else [routing]
                outputs.append(flow.join())
                last.append(state)
        return Memory(torch.cat(outputs, dim=-1), layout, torch.cat(last, dim=-1), tuple(routings))

    def decode(self, memory: Memory, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        layout = target.layout()
        y = self.target_dropout(self.embedding(layout.flatten(target.ids)), layout.seeds)
        with self._format(y):
            hidden, weights, routings = self.decoder(memory, y, layout)
        found = AttentionWeights()
        if weights is not None and attention.wants("cross", 0, 1):
            found.cross[0] = attention.choose(weights.unsqueeze(1))
        return Decoded(hidden, *join_routings([*memory.routings, *routings], layout), found)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        return self.output.project(hidden, self.output_bias)

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        source, target = choose_counted(source, target, weights)
        decoded = self.decode(self.encode(source), target)
        hidden, weight = append_bias(decoded.hidden, self.output.weight, self.output_bias)
        decoded, smoothing = replace(decoded, hidden=hidden), self.config.label_smoothing
        return LossSums.of(decoded, weight, target, labels, smoothing=smoothing, weights=weights)

    def start(self, memory: Memory, beam: int, allowed: AllowedTokens | None = None) -> RecurrentState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        return replace(self.decoder.begin_state(memory, beam), allowed=allowed)

    def step(
        self, state: RecurrentState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[RecurrentState]:
        """Read one symbol in every row; of its attention, the encoder-decoder's can be had.

        Raises:
            ValueError: Another kind is asked for.
        """
        if attention.encoder or attention.decoder:
            raise ValueError("a step tells of the encoder-decoder attention alone: a recurrent model has no other")
        embedded = self.embedding(fill_unread(tokens))
        hidden, weights, after = self.decoder.step(self.target_dropout(embedded, None), state)
        found = {}
        if weights is not None and attention.wants("cross", 0, 1):
            found[0] = attention.choose(weights.unsqueeze(1))
        # All of the vocabulary is scored: PyTorch has no product with columns that differ from batch to batch.
        columns = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(self.project(hidden), found, after, columns)

    @property
    def output(self) -> Embedding:
        """The matrix that scores the next symbol."""
        return self.embedding if self.projection is None else self.projection

    def _format(self, x: Tensor) -> AbstractContextManager[None]:
        """Without autocast where PyTorch computes recurrences: it has no LSTM for it on every processor."""
        if self.decoder.has_kernels and has_lstm(x) and maps_rows(x, self.embedding.weight):
            return nullcontext()
        return _in_own_format(x)

    @property
    def _stacks(self) -> Iterable[Iterable[RecurrentStackLayer]]:
        return cast(Iterable[Iterable[RecurrentStackLayer]], self.encoder)  # nn.ModuleList is not generic


def _directions(config: RecurrentConfig) -> list[list[tuple[Direction, ...]]]:
    """Where each layer of each of the encoder's stacks begins to read."""
    layers = range(config.encoder_layers)
    match config.directions:
        case "one":
            return [[("left",) for _ in layers]]
        case "first":
            return [[("left",) if number else ("left", "right") for number in layers]]
        case "all":
            return [[("left", "right") for _ in layers]]
        case "interleaved":
            turns: tuple[Direction, Direction] = ("left", "right")
            return [[(turns[(number + stack) % 2],) for number in layers] for stack in range(2)]
        case _:
            assert_never(config.directions)


def _make_stack(
    config: RecurrentConfig, directions: list[tuple[Direction, ...]], numbers: Iterator[int]
) -> nn.ModuleList:
    stack: list[RecurrentStackLayer] = []
    for number, begins in enumerate(directions, start=1):
        below, forwarded = (stack[-1].outputs, stack[-1].forwarded) if stack else (config.embedding_size, 0)
        layers = config.encoder_layers
        layer = RecurrentStackLayer(config, number, below, numbers, layers=layers, forwarded=forwarded, begins=begins)
        stack.append(layer)
    return nn.ModuleList(stack)


def _in_own_format(x: Tensor) -> AbstractContextManager[None]:
    """Without autocast, for which PyTorch has no LSTM on every processor; tensors without storage know none."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
