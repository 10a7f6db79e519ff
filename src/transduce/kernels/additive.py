"""Attention whose scores have a hidden layer, over ragged batches; its plain form: ``layers.recurrent_attention``."""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
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

    The queries of row b look at the symbols from ``begins[b]`` to ``ends[b]``, ``longest`` of them at most. All numbers
    are float32's.
    """

    keys: Float[Tensor, "memory_tokens units"]
    values: Float[Tensor, "memory_tokens memory"]
    vector: Float[Tensor, " units"]
    begins: Int[Tensor, " batch"]
    ends: Int[Tensor, " batch"]
    longest: int
    sharpness: float = 1.0

    @classmethod
    def ragged(cls, keys: Tensor, values: Tensor, vector: Tensor, layout: RaggedLayout, sharpness: float) -> "Sources":
        """Those whose symbols lie as ``layout`` says."""
        return cls(keys, values, vector, layout.offsets[:-1], layout.offsets[1:], layout.longest, sharpness)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """What has gradients."""
        return self.keys, self.values, self.vector

    def make_room(self, tokens: int) -> _Attended:
        """For the contexts and weights of so many queries."""
        contexts = self.values.new_empty(tokens, self.values.shape[1])
        return contexts, self.values.new_empty(tokens, self.longest)

    def lay_down(self, queries: Tensor, made: _Attended, batch: int) -> AdditiveAttentionAddress:
        """Where a kernel finds all of it, the queries of so many rows, and the room for what it makes."""
        (tokens, units), memory = queries.shape, self.values.shape[1]
        single, symbols = torch.float32, len(self.keys)
        attention = AdditiveAttentionAddress(
            units,
            memory,
            self.longest,
            address(self.begins, torch.int64, batch),
            address(self.ends, torch.int64, batch),
            address(self.keys, single, symbols, units),
            address(self.values, single, symbols, memory),
            address(self.vector, single, units),
            address(queries, single, tokens, units),
            address(made[0], single, tokens, memory),
            address(made[1], single, tokens, self.longest),
        )
        attention.sharpness = self.sharpness
        return attention

    def lay_down_gradients(
        self, queries: Tensor, made: _Attended, of_contexts: Tensor, batch: int
    ) -> tuple[AdditiveAttentionAddress, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The same with room for the gradients of queries, and of keys, values and vector; all must outlive its use."""
        attention, of_queries = self.lay_down(queries, made, batch), torch.empty_like(queries)
        of_all = torch.zeros_like(self.keys), torch.zeros_like(self.values), torch.zeros_like(self.vector)
        attention.of_contexts = address(of_contexts, torch.float32, *of_contexts.shape)
        attention.of_queries = address(of_queries, torch.float32, *queries.shape)
        attention.of_keys, attention.of_values, attention.of_vector = (each.data_ptr() for each in of_all)
        return attention, of_queries, of_all


def has_additive(*tensors: Tensor) -> bool:
    """Whether ``attend_additively`` is there for such tensors."""
    return has_native(*tensors) and all(len(each) > 0 and each.dtype == torch.float32 for each in tensors)


def attend_additively(
    queries: Float[Tensor, "tokens units"], sources: Sources, offsets: Int[Tensor, " ends"]
) -> _Attended:
    """The contexts of queries that are all known, and the weights, which have no gradient.

    Row b's queries are those from ``offsets[b]`` to ``offsets[b + 1]``.
    """
    found: _Attended = _AdditiveAttention.apply(  # type: ignore[no-untyped-call]
        queries.float().contiguous(), *sources.tensors, sources, offsets
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
        offsets: Tensor,
    ) -> _Attended:
        made, batch = sources.make_room(len(queries)), len(sources.begins)
        place = address(offsets, torch.int64, batch + 1)
        call("additive_attention", None, sources.lay_down(queries, made, batch), place, batch)
        ctx.save_for_backward(queries, *sources.tensors, *made)
        ctx.sources, ctx.offsets = sources, offsets
        ctx.mark_non_differentiable(made[1])
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_contexts: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        queries, _, _, _, contexts, weights = ctx.saved_tensors
        sources, batch = ctx.sources, len(ctx.sources.begins)
        of_contexts = of_contexts.contiguous()
        attention, of_queries, of_sources = sources.lay_down_gradients(queries, (contexts, weights), of_contexts, batch)
        call("additive_attention_backward", None, attention, address(ctx.offsets, torch.int64, batch + 1), batch)
        return of_queries, *of_sources, None, None
