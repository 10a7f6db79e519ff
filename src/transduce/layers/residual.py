"""The residual connection, normalization and dropout around every sub-layer (sections 3.1 and 5.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never, final

from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.kernels import (
    WHOLE,
    Attending,
    Dropped,
    Sublayer,
    Transforming,
    add_norm,
    can_run_sublayers,
    dropout,
    run_sublayers,
)
from transduce.layers.dropout import Dropout
from transduce.layers.linear import PendingBias

Rows = Float[Tensor, "*positions model"]


@final
@dataclass(frozen=True)
class Stream:
    """The residual stream.

    ``pending`` is a sub-layer's output that is still to be added to ``total``, less what is ``dropped``: whoever
    normalizes the sum adds it up in the same pass, and the output's ``bias`` to it, where it has none yet. ``ready`` is
    the total as a matrix product reads it.
    """

    total: Rows
    pending: Rows | None = None
    dropped: Dropped = WHOLE
    ready: Rows | None = None
    bias: Float[Tensor, " model"] | None = None

    def settle(self) -> Rows:
        """The sum with all added up."""
        if self.pending is None:
            return self.total
        output = self.pending if self.bias is None else self.pending + self.bias
        return self.total + dropout(output, self.dropped)

    def normalize(self, norm: nn.LayerNorm) -> tuple["Stream", Rows]:
        """The stream with all added up, and its LayerNorm for a matrix product."""
        total, ready = self._add_norm(norm, post=False)
        return Stream(total), ready

    def replace(self, norm: nn.LayerNorm) -> "Stream":
        """The LayerNorm of all added up, which goes on in its place."""
        total, ready = self._add_norm(norm, post=True)
        return Stream(total, ready=ready)

    def through(
        self, sublayers: Sequence[Sublayer | None], memory: Float[Tensor, "memory_tokens model"] | None = None
    ) -> "Stream | None":
        """What all of them make of it as one operation; None where there is none, or it would not be the fastest.

        It is for a stream that ``may_run_sublayers``.
        """
        known = [each for each in sublayers if each is not None]
        if self.bias is not None or len(known) < len(sublayers) or not can_run_sublayers(self.total, known):
            return None
        post = known[0].post
        joined = self.ready if post else self.pending
        total, joined = run_sublayers(self.total, joined, self.dropped, memory, known)
        return Stream(total, ready=joined) if post else Stream(total, joined, known[-1].dropped)

    def _add_norm(self, norm: nn.LayerNorm, *, post: bool) -> tuple[Rows, Rows]:
        given = self.total, self.pending, norm.weight, norm.bias
        return add_norm(*given, norm.eps, self.dropped, post=post, output_bias=self.bias)


@final
class Residual(nn.Module):
    """The residual connection around a sub-layer.

    Post-norm, as published: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).
    A sub-layer's place in the code is between the two verbs: ``add(x, sublayer(query))`` behind
    ``x, query = prepare(x)``. Without ``residual``, the ``x +`` is left out.
    """

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        self.position, self.residual = config.norm, config.residual
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout, number)

    def prepare(self, x: Stream) -> tuple[Stream, Rows]:
        """The stream, and what the sub-layer is given."""
        match self.position:
            case "post":
                return x, x.total if x.ready is None else x.ready
            case "pre":
                return x.normalize(self.norm)
            case _:
                assert_never(self.position)

    def around(
        self, inner: Attending | Transforming | None, seeds: Int[Tensor, "*positions"] | None
    ) -> Sublayer | None:
        """A sub-layer between the two verbs, to be run among others; None where it cannot be."""
        if inner is None or not self.residual:
            return None
        norm, dropped = self.norm, self.dropout.at(seeds)
        return Sublayer(inner, norm.weight, norm.bias, norm.eps, dropped, post=self.position == "post")

    def add(self, x: Stream, output: Rows | PendingBias, seeds: Int[Tensor, "*positions"] | None = None) -> Stream:
        """Join what the sub-layer made to what it was made from; ``seeds`` are what dropout follows from."""
        dropped = self.dropout.at(seeds)
        rows, bias = (output.rows, output.bias) if isinstance(output, PendingBias) else (output, None)
        if self.residual:
            total = Stream(x.total, rows, dropped, bias=bias)
        else:
            total = Stream(dropout(rows if bias is None else rows + bias, dropped))
        match self.position:
            case "post":
                return total.replace(self.norm)
            case "pre":
                return total
            case _:
                assert_never(self.position)
