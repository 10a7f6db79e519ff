"""A Transformer by PyTorch's own functions, over another library's weights: nothing in it is shared with our models."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]
Hidden = Float[Tensor, "hypotheses positions model"]

# What the networks of other libraries are called for.
ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
_NEAR: Final = 1e-3  # far positions are by rounded angles


@final
@dataclass(frozen=True)
class PlainTransformer:
    """What is computed, over weights by plain names; those that a model has not are left out.

    They are ``source``, ``target``, ``output`` and ``output.bias``; ``positions.encoder`` and ``positions.decoder``;
    for each side ``SIDE.norm`` and ``SIDE.embedding_norm``; for each layer N of a side, ``SIDE.N.self``,
    ``SIDE.N.cross`` and ``SIDE.N.ffn``, each with a ``.norm`` and maps (``.q``, ``.k``, ``.v``, ``.o``; ``.1``,
    ``.gate``, ``.2``); ``SIDE.N.self.relative`` has the vectors of relative positions, for keys and values. Modules
    have ``.weight`` and ``.bias``.

    ``scale`` is what embeddings are multiplied by, ``relative_scale`` what products of queries and relative positions
    are. Ids are the other library's.
    """

    weights: Mapping[str, Tensor]
    heads: int
    pre_norm: bool
    activation: Activation
    epsilon: float
    scale: float
    relative_scale: float = 1.0

    def encode(
        self, source: Int[Tensor, " positions"], outputs: dict[str, Tensor] | None = None
    ) -> Float[Tensor, "one positions model"]:
        """What the decoder reads; ``outputs`` is given what each layer hands on."""
        return self._run("encoder", self.weights["source"][source].unsqueeze(0), None, outputs)

    def decode(
        self,
        memory: Float[Tensor, "one memory model"],
        targets: Int[Tensor, "hypotheses positions"],
        outputs: dict[str, Tensor] | None = None,
    ) -> Float[Tensor, "hypotheses positions vocabulary"]:
        """The logits behind every symbol of several targets of one source."""
        embedded = self.weights["target"][targets]
        hidden = self._run("decoder", embedded, memory.expand(len(targets), -1, -1), outputs)
        return F.linear(hidden, self.weights["output"], self.weights.get("output.bias"))

    def _run(self, side: str, embedded: Hidden, memory: Hidden | None, outputs: dict[str, Tensor] | None) -> Hidden:
        x = embedded * self.scale
        if (table := self.weights.get(f"positions.{side}")) is not None:
            x = x + table[: x.shape[1]]
        x = self._norm(x, f"{side}.embedding_norm")
        number = 0
        while f"{side}.{number}.self.q.weight" in self.weights:
            layer = f"{side}.{number}"
            x = self._sublayer(x, f"{layer}.self", lambda y, name: self._attend(y, y, name, causal=side == "decoder"))
            if memory is not None:
                x = self._sublayer(x, f"{layer}.cross", lambda y, name: self._attend(y, memory, name, causal=False))
            x = self._sublayer(x, f"{layer}.ffn", self._transform)
            number += 1
            if outputs is not None:
                outputs[f"{side} layer {number}"] = x[0]
        return self._norm(x, f"{side}.norm")

    def _sublayer(self, x: Hidden, name: str, compute: Callable[[Hidden, str], Hidden]) -> Hidden:
        if self.pre_norm:
            return x + compute(self._norm(x, f"{name}.norm"), name)
        return self._norm(x + compute(x, name), f"{name}.norm")

    def _norm(self, x: Hidden, name: str) -> Hidden:
        """Normalized, where there is such a norm."""
        if f"{name}.weight" not in self.weights:
            return x
        return F.layer_norm(
            x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"), self.epsilon
        )

    def _linear(self, x: Hidden, name: str) -> Hidden:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _transform(self, x: Hidden, name: str) -> Hidden:
        if f"{name}.gate.weight" in self.weights:
            return self._linear(
                self.activation(self._linear(x, f"{name}.gate")) * self._linear(x, f"{name}.1"), f"{name}.2"
            )
        return self._linear(self.activation(self._linear(x, f"{name}.1")), f"{name}.2")

    def _attend(self, x: Hidden, memory: Hidden, name: str, *, causal: bool) -> Hidden:
        query, key, value = (
            self._linear(read, f"{name}.{which}").view(*read.shape[:2], self.heads, -1).transpose(1, 2)
            for read, which in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        if (vectors := self.weights.get(f"{name}.relative")) is not None:
            attended = self._attend_relative(query, key, value, vectors, causal=causal)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self._linear(attended.transpose(1, 2).flatten(2), f"{name}.o")

    def _attend_relative(self, query: Tensor, key: Tensor, value: Tensor, vectors: Tensor, *, causal: bool) -> Tensor:
        """With vectors for how far apart two positions are, the furthest ones alike (Shaw et al. 2018)."""
        places, reach = torch.arange(query.shape[2]), len(vectors) // 2
        between = vectors[(places - places.unsqueeze(1)).clamp(-reach, reach) + reach]
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        scores = scores + self.relative_scale * torch.einsum("bhqd,qkd->bhqk", query, between)
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -math.inf)
        shares = scores.softmax(-1)
        return shares @ value + torch.einsum("bhqk,qkd->bhqd", shares, between)


def sinusoid_table(
    length: int, width: int, *, interleaved: bool = False, closed: bool = False, first: int = 0
) -> Float[Tensor, "positions model"]:
    """Sines before cosines, or by turns; ``closed`` is whether the last wavelength is 10,000 radians itself."""
    half = width // 2
    rates = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / (half - 1 if closed else half))
    angles = torch.arange(first, first + length, dtype=torch.float64).unsqueeze(1) * rates
    pair = (angles.sin(), angles.cos())
    return (torch.stack(pair, -1).flatten(1) if interleaved else torch.cat(pair, 1)).float()


def go_on(stored: Float[Tensor, "positions model"] | None, sinusoids: Float[Tensor, "_ model"]) -> Tensor:
    """A table of positions: one of these sinusoids goes on behind its end; where none is stored, it is they.

    Rounded to fewer bits than float32 has, a stored one stands for the sinusoids that the model was trained with.
    """
    if stored is None:
        return sinusoids
    table, count, rounding = stored.float(), min(len(stored), len(sinusoids)), torch.finfo(stored.dtype).eps
    if not torch.allclose(table[:count], sinusoids[:count], atol=max(_NEAR, rounding)):
        return table
    known = table[:count] if rounding <= torch.finfo(torch.float32).eps else sinusoids[:count]
    return torch.cat([known, table[count:], sinusoids[count:]])
