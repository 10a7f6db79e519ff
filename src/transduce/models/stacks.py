"""The encoder's and the decoder's layers (section 3.1)."""

from collections.abc import Callable, Iterator
from typing import assert_never, final

from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import Attending, Mask, ProjectedMemory, RaggedLayout, Transforming, may_run_sublayers
from transduce.layers import (
    AverageAttention,
    FeedForward,
    KeyValues,
    MixtureOfExperts,
    MultiHeadAttention,
    Past,
    Residual,
    Routing,
    RunningSum,
    Stream,
    average_weights,
    feed_forward,
)
from transduce.layers.feed_forward import FeedForwardSublayer


@final
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each inside its residual; ``numbers`` are those of its dropouts."""

    def __init__(self, config: TransformerConfig, numbers: Iterator[int]) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, next(numbers), relative=config.positions == "relative")
        self.self_attention_residual = Residual(config, next(numbers))
        self.feed_forward = feed_forward(config, next(numbers))
        self.feed_forward_residual = Residual(config, next(numbers))

    def forward(self, x: Stream, layout: RaggedLayout, window: int | None) -> tuple[Stream, Routing | None]:
        """Let every position look at those of its own row, at most so far away; also where a mixture sent them."""
        behind = _at_once(
            *(x, layout, None),
            (self.self_attention_residual, lambda: self.self_attention.inside(layout, layout, window=window)),
            (self.feed_forward_residual, lambda: _inside(self.feed_forward, layout)),
        )
        if behind is not None:
            return behind, None
        x, query = self.self_attention_residual.prepare(x)
        output = self.self_attention(query, None, layout, layout, window=window, defer_bias=True)
        x = self.self_attention_residual.add(x, output, layout.seeds)
        return _transform(self.feed_forward, self.feed_forward_residual, x, layout)

    def self_weights(
        self, x: Stream, layout: RaggedLayout, window: int | None
    ) -> Float[Tensor, "batch heads queries keys"]:
        """How the self-attention weighs the positions of each row."""
        query = layout.pad(self.self_attention_residual.prepare(x)[1])
        attended = self.self_attention.key_values(query)
        return self.self_attention.weights(query, attended, Mask(layout.real, window=window))


@final
class DecoderLayer(nn.Module):
    """Self-attention over the past, attention over the encoder's output, then a feed-forward network.

    All positions of known targets go through ``forward`` at once; ``step`` reads one after the other.
    """

    def __init__(self, config: TransformerConfig, numbers: Iterator[int]) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, next(numbers))
        self.self_attention_residual = Residual(config, next(numbers))
        self.cross_attention = MultiHeadAttention(config, next(numbers))
        self.cross_attention_residual = Residual(config, next(numbers))
        self.feed_forward = feed_forward(config, next(numbers))
        self.feed_forward_residual = Residual(config, next(numbers))
        self.width = config.d_model

    def forward(
        self,
        x: Stream,
        memory: Float[Tensor, "source_tokens model"],
        layout: RaggedLayout,
        memory_layout: RaggedLayout,
        window: int | None,
        projected_memory: ProjectedMemory | None = None,
    ) -> tuple[Stream, Routing | None]:
        """Let every position look at those before it, and at its row of the memory; also where a mixture sent them.

        ``projected_memory`` is what the attention to the memory reads of it, where that is made already.
        """
        behind = _at_once(
            *(x, layout, memory),
            (self.self_attention_residual, lambda: self._inside_past(layout, window)),
            (
                self.cross_attention_residual,
                lambda: self.cross_attention.inside(layout, memory_layout, with_memory=True),
            ),
            (self.feed_forward_residual, lambda: _inside(self.feed_forward, layout)),
        )
        if behind is not None:
            return behind, None
        x = self.attend_past(x, layout, window)
        x, query = self.cross_attention_residual.prepare(x)
        output = self.cross_attention(
            query, memory, layout, memory_layout, projected_memory=projected_memory, defer_bias=True
        )
        x = self.cross_attention_residual.add(x, output, layout.seeds)
        return _transform(self.feed_forward, self.feed_forward_residual, x, layout)

    def attend_past(self, x: Stream, layout: RaggedLayout, window: int | None) -> Stream:
        """The self-attention sub-layer: the first of the three."""
        x, query = self.self_attention_residual.prepare(x)
        if isinstance(self.self_attention, AverageAttention):
            output = self.self_attention(query, layout)
        else:
            output = self.self_attention(query, None, layout, layout, causal=True, window=window, defer_bias=True)
        return self.self_attention_residual.add(x, output, layout.seeds)

    def _inside_past(self, layout: RaggedLayout, window: int | None) -> Attending | None:
        attention = self.self_attention
        return (
            attention.inside(layout, layout, causal=True, window=window)
            if isinstance(attention, MultiHeadAttention)
            else None
        )

    def step(self, x: Stream, past: Past, past_mask: Mask, memory: KeyValues, memory_mask: Mask) -> tuple[Stream, Past]:
        """Read the newest positions of every row; also returns the past for the next ones."""
        x, past = self.step_past(x, past, past_mask)
        x, query = self.cross_attention_residual.prepare(x)
        # A sentence's rows ask the same memory: they are so many queries of one attention.
        found = self.cross_attention.look(_by_sentence(query, memory), memory, memory_mask)
        x = self.cross_attention_residual.add(x, found.view_as(query))
        x, query = self.feed_forward_residual.prepare(x)
        return self.feed_forward_residual.add(x, self.feed_forward(query)), past

    def nothing_read(self, memory: KeyValues, beam: int) -> Past:
        """The past of ``beam`` rows of each of the memory's sentences that have read nothing yet."""
        rows = memory.key.shape[0] * beam
        if isinstance(self.self_attention, AverageAttention):
            return RunningSum.empty(memory.key.new_empty(rows, self.width))
        heads = self.self_attention.heads
        empty = (memory.key.new_empty(rows, heads.number, 0, width) for width in (heads.d_k, heads.d_v))
        return KeyValues(*empty)

    def step_past(self, x: Stream, past: Past, mask: Mask) -> tuple[Stream, Past]:
        """The self-attention sub-layer of a step: the first of the three."""
        x, query = self.self_attention_residual.prepare(x)
        if isinstance(self.self_attention, AverageAttention):
            assert isinstance(past, RunningSum)
            output, past = self.self_attention.step(query, past)
        else:
            assert isinstance(past, KeyValues)
            past = past.append(self.self_attention.key_values(query))
            output = self.self_attention.look(query, past, mask)
        return self.self_attention_residual.add(x, output), past

    def self_weights(
        self, x: Stream, layout: RaggedLayout, window: int | None
    ) -> Float[Tensor, "batch heads queries keys"]:
        """How the self-attention weighs the positions of each row up to its own."""
        if isinstance(self.self_attention, AverageAttention):
            return average_weights(layout.real, self.cross_attention.heads.number)
        query = layout.pad(self.self_attention_residual.prepare(x)[1])
        attended = self.self_attention.key_values(query)
        return self.self_attention.weights(query, attended, Mask(layout.real, causal=True, window=window))

    def memory_query(self, x: Stream) -> Float[Tensor, "*positions model"]:
        """What asks the memory, ``x`` being behind the self-attention."""
        return self.cross_attention_residual.prepare(x)[1]

    def memory_weights(
        self, query: Float[Tensor, "rows new model"], memory: KeyValues, mask: Mask
    ) -> Float[Tensor, "batch heads queries source"]:
        """How the encoder-decoder attention weighs the source's positions."""
        return self.cross_attention.weights(_by_sentence(query, memory), memory, mask)


def _self_attention(config: TransformerConfig, number: int) -> AverageAttention | MultiHeadAttention:
    """The decoder's."""
    match config.decoder_self_attention:
        case "multi_head":
            return MultiHeadAttention(config, number, relative=config.positions == "relative")
        case "average":
            return AverageAttention(config, number)
        case _:
            assert_never(config.decoder_self_attention)


def _at_once(
    x: Stream,
    layout: RaggedLayout,
    memory: Float[Tensor, "source_tokens model"] | None,
    *sublayers: tuple[Residual, Callable[[], Attending | Transforming | None]],
) -> Stream | None:
    """A layer as one operation; None where its sub-layers have to be gone through one by one, or that is faster."""
    if not may_run_sublayers(x.total):
        return None
    return x.through([residual.around(inside(), layout.seeds) for residual, inside in sublayers], memory)


def _inside(network: FeedForwardSublayer, layout: RaggedLayout) -> Transforming | None:
    return network.inside(layout.seeds) if isinstance(network, FeedForward) else None


def _transform(
    network: FeedForwardSublayer, residual: Residual, x: Stream, layout: RaggedLayout
) -> tuple[Stream, Routing | None]:
    """The feed-forward sub-layer."""
    x, query = residual.prepare(x)
    if isinstance(network, MixtureOfExperts):
        output, routing = network.route(query, layout)
    elif isinstance(network, FeedForward):
        # No layer reads another's parameters: of a model that is spread over processes, they are not there any more.
        output, routing = network(query, layout.seeds, defer_bias=residual.position == "post"), None
    else:
        output, routing = network(query, layout.seeds), None
    return residual.add(x, output, layout.seeds), routing


def _by_sentence(x: Float[Tensor, "rows new model"], memory: KeyValues) -> Float[Tensor, "sentences queries model"]:
    """The queries of all rows of a sentence together."""
    return x.reshape(memory.key.shape[0], -1, x.shape[-1])
