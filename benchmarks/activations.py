"""What goes through an encoder: its stream between the layers, and what the sub-layers are given and make of it."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.kernels import RaggedLayout
from transduce.layers import Stream
from transduce.models import Tokens, Transformer
from transduce.models.stacks import EncoderLayer

Activations = Float[Tensor, "batch length model"]
Rows = Float[Tensor, "tokens model"]


@final
@dataclass(frozen=True)
class Passages:
    """What modules of one kind are given and make of it, layer by layer."""

    layout: RaggedLayout
    given: list[Activations] = field(default_factory=list)
    made: list[Activations] = field(default_factory=list)

    def see(self, _: nn.Module, given: tuple[Any, ...], made: Rows | tuple[Stream, Any]) -> None:
        """A module's forward hook; a layer tells of its experts beside the stream."""
        self.given.append(self._read(given[0]))
        self.made.append(self._read(made[0] if isinstance(made, tuple) else made))

    def _read(self, x: Rows | Stream) -> Activations:
        """A layer hands on a stream, a sub-layer plain rows."""
        return self.layout.pad(x.settle() if isinstance(x, Stream) else x)


@final
@dataclass(frozen=True)
class Encoding:
    """``stream`` holds what the first layer is given, then what every layer leaves."""

    stream: list[Activations]
    attention: Passages
    feed_forward: Passages


@torch.no_grad()
def watch(model: Transformer, source: Tokens) -> Encoding:
    """Encode without dropout, and keep everything."""
    layout = source.layout()
    layers, attention, feed_forward = Passages(layout), Passages(layout), Passages(layout)
    with ExitStack() as hooks:
        for layer in cast(Iterable[EncoderLayer], model.encoder):  # nn.ModuleList is not generic
            hooks.enter_context(layer.register_forward_hook(layers.see))
            hooks.enter_context(layer.self_attention.register_forward_hook(attention.see))
            hooks.enter_context(layer.feed_forward.register_forward_hook(feed_forward.see))
        model.eval().encode(source)
    return Encoding([layers.given[0], *layers.made], attention, feed_forward)


def random_source(rows: int, length: int, symbols: range) -> Tokens:
    """Sequences of symbols drawn evenly, without padding."""
    return Tokens(torch.randint(symbols.start, symbols.stop, (rows, length)), torch.full((rows,), length))
