"""One-dimensional convolutions over ragged batches, and a symbol at a time; gates; weight normalization."""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.kernels import Neighbours, RaggedLayout, linear_maps
from transduce.layers.linear import Linear


@final
class NormalizedLinear(nn.Module):
    """A linear map whose rows' lengths and directions are trained apart: w = g v / |v| (Salimans and Kingma 2016)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs))
        self.length = nn.Parameter(torch.ones(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def weight(self) -> Float[Tensor, "outputs inputs"]:
        """W, row after row g v / |v|."""
        norms = torch.linalg.vector_norm(self.direction, dim=1)
        weight: Tensor = self.direction * (self.length / norms).unsqueeze(1)
        return weight

    def forward(self, x: Float[Tensor, "*positions inputs"]) -> Float[Tensor, "*positions outputs"]:
        """X W^T + b."""
        return linear_maps(x, [self.weight()], [self.bias])

    @torch.no_grad()
    def fold(self) -> Linear:
        """The same map with its weights as they are, for use alone."""
        folded = Linear(self.direction.shape[1], self.direction.shape[0]).to(self.direction)
        folded.weight.copy_(self.weight())
        folded.bias.copy_(self.bias)
        return folded


def draw_linear(inputs: int, outputs: int, std: float) -> Linear:
    """A linear map with zero bias and weights from N(0, std^2)."""
    layer = Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


def draw_map(inputs: int, outputs: int, *, std: float, normalized: bool) -> Linear | NormalizedLinear:
    """``draw_linear``, or such a map with weight normalization: every row's length is that of what was drawn."""
    if not normalized:
        return draw_linear(inputs, outputs, std)
    split = NormalizedLinear(inputs, outputs)
    nn.init.normal_(split.direction, std=std)
    with torch.no_grad():
        split.length.copy_(torch.linalg.vector_norm(split.direction, dim=1))
    return split


def fold_normalization(module: nn.Module) -> None:
    """Replace all maps with weight normalization by plain ones, which compute the same."""
    for name, child in module.named_children():
        if isinstance(child, NormalizedLinear):
            setattr(module, name, child.fold())
        else:
            fold_normalization(child)


def causal(kernel: int, dilation: int = 1) -> tuple[int, ...]:
    """The offsets of a kernel that ends at the symbol itself: (k - 1) r before it, ..., r before it, it."""
    return tuple(range(-(kernel - 1) * dilation, 1, dilation))


def centred(kernel: int, dilation: int = 1) -> tuple[int, ...]:
    """The offsets of an odd kernel around the symbol."""
    reach = (kernel - 1) // 2 * dilation
    return tuple(range(-reach, reach + 1, dilation))


@final
class Convolution(nn.Module):
    """y_t = W [x_{t + o_1}; ...; x_{t + o_k}] + b for the ``offsets`` o, where a symbol that is not there is zero."""

    def __init__(self, map_: nn.Module, inputs: int, offsets: Sequence[int]) -> None:
        super().__init__()
        self.map, self.inputs, self.offsets = map_, inputs, tuple(offsets)

    def empty(self, rows: int, like: Tensor) -> Float[Tensor, "kept rows inputs"]:
        """The ring of columns (``step``) of rows that have read nothing yet."""
        return like.new_zeros(self.kept, rows, self.inputs)

    def forward(self, x: Float[Tensor, "tokens inputs"], neighbours: Neighbours) -> Float[Tensor, "tokens outputs"]:
        """All symbols of a ragged batch at once; the neighbours are those at this convolution's offsets."""
        result: Tensor = self.map(neighbours.windows(x))
        return result

    @property
    def kept(self) -> int:
        """How many symbols back a causal convolution reads: that many columns are kept from step to step."""
        return -self.offsets[0]

    def step(
        self, x: Float[Tensor, "rows inputs"], columns: Float[Tensor, "kept rows inputs"], clock: int
    ) -> Float[Tensor, "rows outputs"]:
        """One more symbol of every row, by a causal convolution.

        ``columns`` is a ring: what was read at time t is at t modulo its size, and what time 0 had before it is zeros.
        The newest is written into it, where the oldest was, which is read for the last time.
        """
        if not self.kept:
            result: Tensor = self.map(x)
            return result
        past = [columns[(clock + offset) % self.kept] for offset in self.offsets[:-1]]
        result = self.map(torch.cat([*past, x], dim=1))
        columns[clock % self.kept] = x
        return result


def look_around(convolutions: Iterable[Convolution], layout: RaggedLayout) -> Mapping[tuple[int, ...], Neighbours]:
    """What convolutions read in a ragged batch, by their offsets."""
    return {offsets: Neighbours.of(layout, offsets) for offsets in {each.offsets for each in convolutions}}


def gate(x: Float[Tensor, "*positions twice"]) -> Float[Tensor, "*positions channels"]:
    """GLU([a; b]) = a sigmoid(b) (Dauphin et al. 2016)."""
    return nn.functional.glu(x, dim=-1)


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None  # type: ignore[attr-defined]


def scale_gradient(x: Float[Tensor, "*shape"], factor: float) -> Float[Tensor, "*shape"]:
    """The same numbers, whose gradient is multiplied by a factor on its way back."""
    result: Tensor = _ScaledGradient.apply(x, factor)  # type: ignore[no-untyped-call]
    return result
