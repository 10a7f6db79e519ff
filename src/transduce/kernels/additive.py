"""Attention whose scores have a hidden layer, over ragged batches; its plain form: ``layers.recurrent_attention``."""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.interface import AdditiveAttentionAddress
from transduce.kernels.native import address, call, has_native
from transduce.kernels.ragged import RaggedLayout

_Attended = tuple[Float[Tensor, "tokens memory"], Float[Tensor, "tokens source"]]  # contexts and weights


@final
@dataclass(frozen=True)
class Sources:
    """What queries of a ragged batch look at: e_j = v tanh(q + k_j), weights softmax(beta e), contexts of the values.

    All is in float32; ``layout`` is that of the sources' symbols.
    """

    keys: Float[Tensor, "memory_tokens units"]
    values: Float[Tensor, "memory_tokens memory"]
    vector: Float[Tensor, " units"]
    layout: RaggedLayout
    sharpness: float = 1.0

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """What has gradients."""
        return self.keys, self.values, self.vector

    def make_room(self, tokens: int) -> _Attended:
        """For the contexts and weights of so many queries."""
        contexts = self.values.new_empty(tokens, self.values.shape[1])
        return contexts, self.values.new_empty(tokens, self.layout.longest)

    def lay_down(self, queries: Tensor, made: _Attended) -> AdditiveAttentionAddress:
        """Where a kernel finds all of it, the queries, and the room for what it makes."""
        (tokens, units), memory = queries.shape, self.values.shape[1]
        single, symbols, batch = torch.float32, self.layout.tokens, len(self.layout.lengths)
        attention = AdditiveAttentionAddress(
            units,
            memory,
            self.layout.longest,
            address(self.layout.offsets, torch.int64, batch + 1),
            address(self.keys, single, symbols, units),
            address(self.values, single, symbols, memory),
            address(self.vector, single, units),
            address(queries, single, tokens, units),
            address(made[0], single, tokens, memory),
            address(made[1], single, tokens, self.layout.longest),
        )
        attention.sharpness = self.sharpness
        return attention

    def lay_down_gradients(
        self, attention: AdditiveAttentionAddress, of_queries: Tensor, of_contexts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Room for the gradients of keys, values and vector; the other two have to live as long as the kernel's use."""
        of_all = torch.zeros_like(self.keys), torch.zeros_like(self.values), torch.zeros_like(self.vector)
        single = torch.float32
        attention.of_contexts = address(of_contexts, single, *of_contexts.shape)
        attention.of_queries = address(of_queries, single, *of_queries.shape)
        attention.of_keys, attention.of_values, attention.of_vector = (each.data_ptr() for each in of_all)
        return of_all


def has_additive(*tensors: Tensor) -> bool:
    """Whether ``attend_additively`` is there for such tensors."""
    return has_native(*tensors) and all(len(each) > 0 for each in tensors)


def attend_additively(queries: Float[Tensor, "tokens units"], sources: Sources, layout: RaggedLayout) -> _Attended:
    """The contexts of queries that are all known, and the weights, which have no gradient."""
    found: _Attended = _AdditiveAttention.apply(  # type: ignore[no-untyped-call]
        queries.float().contiguous(), *sources.tensors, sources, layout
    )
    return found


@final
class _AdditiveAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        vector: Tensor,
        sources: Sources,
        layout: RaggedLayout,
    ) -> _Attended:
        made, batch = sources.make_room(len(queries)), len(layout.lengths)
        offsets = address(layout.offsets, torch.int64, batch + 1)
        call("additive_attention", None, sources.lay_down(queries, made), offsets, batch)
        ctx.save_for_backward(queries, *sources.tensors, *made)
        ctx.sources, ctx.layout = sources, layout
        ctx.mark_non_differentiable(made[1])
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_contexts: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        queries, _, _, _, contexts, weights = ctx.saved_tensors
        sources, layout, batch = ctx.sources, ctx.layout, len(ctx.layout.lengths)
        of_queries, of_contexts = torch.empty_like(queries), of_contexts.contiguous()
        attention = sources.lay_down(queries, (contexts, weights))
        of_sources = sources.lay_down_gradients(attention, of_queries, of_contexts)
        call("additive_attention_backward", None, attention, address(layout.offsets, torch.int64, batch + 1), batch)
        return of_queries, *of_sources, None, None
