"""LSTM layers over ragged batches, all symbols in one call: alone, or with an attention in every step.

The plain forms are PyTorch's LSTM (``layers/recurrent.py``) and the loop in ``models/recurrent_decoder.py``.
"""

from typing import Any, Final, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.additive import Sources
from transduce.kernels.interface import CellsAddress
from transduce.kernels.linear_maps import has_map_rows, lay_down, map_rows_backward
from transduce.kernels.native import address, call, has_native
from transduce.kernels.ragged import RaggedLayout

_GATES: Final = 4  # input, forget, new, output: PyTorch's order

Start = tuple[Float[Tensor, "batch hidden"], Float[Tensor, "batch hidden"]]  # states and memories


def has_lstm(x: Tensor, *weights: Tensor) -> bool:
    """Whether ``lstm`` and its like are there for cells that read ``x``, and can take such weights."""
    return has_native(x, *weights) and len(x) > 0 and all(weight.dtype == torch.float32 for weight in weights)


def lstm(
    gates: Float[Tensor, "tokens gates"],
    weight: Float[Tensor, "gates hidden"],
    layout: RaggedLayout,
    start: Start | None = None,
    *,
    backwards: bool = False,
) -> Float[Tensor, "tokens hidden"]:
    """The states behind every symbol, in float32.

    ``gates`` is what each symbol's gates are made of beside the state, W x + b, in PyTorch's order, and ``weight`` is
    U, which multiplies the state: numbers of the gates' type, summed up in float32. A row begins from ``start``, or
    from zeros; ``backwards``, with its last symbol.
    """
    begun = (None, None) if start is None else (start[0].float().contiguous(), start[1].float().contiguous())
    states: Tensor = _Lstm.apply(  # type: ignore[no-untyped-call]
        gates.contiguous(), weight.contiguous(), *begun, layout, backwards, torch.is_grad_enabled()
    )
    return states


def attending_lstm(
    gates: Float[Tensor, "tokens gates"],
    weight: Float[Tensor, "gates joined"],
    asking: Float[Tensor, "units hidden"],
    sources: Sources,
    layout: RaggedLayout,
    start: Start,
) -> tuple[Float[Tensor, "tokens hidden"], Float[Tensor, "tokens memory"], Float[Tensor, "tokens source"]]:
    """As ``lstm``, of cells that read a context beside what is known: states, contexts and attention's weights.

    The query is ``asking`` times the state before the symbol (Bahdanau et al. 2015). ``weight`` multiplies [c; h]. The
    attention's weights have no gradient.
    """
    _check_width(weight, sources, asking)
    begun = start[0].float().contiguous(), start[1].float().contiguous()
    weights = weight.contiguous(), asking.contiguous()
    found: tuple[Tensor, Tensor, Tensor] = _AttendingLstm.apply(  # type: ignore[no-untyped-call]
        gates.contiguous(), *weights, *begun, *sources.tensors, sources, layout, torch.is_grad_enabled()
    )
    return found


def conditional_lstm(
    gates: Float[Tensor, "tokens gates"],
    weight: Float[Tensor, "gates hidden"],
    bias: Float[Tensor, " gates"],
    second: Float[Tensor, "gates joined"],
    asking: Float[Tensor, "units hidden"],
    sources: Sources,
    layout: RaggedLayout,
    start: Start,
) -> tuple[Float[Tensor, "tokens hidden"], Float[Tensor, "tokens memory"], Float[Tensor, "tokens source"]]:
    """As ``attending_lstm``, of two cells in each step (Sennrich et al. 2017): the second one's states.

    The first cell is one of ``lstm``. Its state h' asks, and the second goes on from that: ``second`` multiplies
    [c; h'], and ``bias`` is all that is known of its gates.
    """
    _check_width(second, sources, asking)
    begun = start[0].float().contiguous(), start[1].float().contiguous()
    known = bias.to(gates.dtype).expand_as(gates).contiguous()
    weights = weight.contiguous(), second.contiguous(), asking.contiguous()
    found: tuple[Tensor, Tensor, Tensor] = _ConditionalLstm.apply(  # type: ignore[no-untyped-call]
        gates.contiguous(), known, *weights, *begun, *sources.tensors, sources, layout, torch.is_grad_enabled()
    )
    return found


def _check_width(weight: Tensor, sources: Sources, asking: Tensor) -> None:
    """See that what multiplies [c; h] is as wide as these.

    Raises:
        ValueError: It is not.
    """
    context, hidden = sources.values.shape[1], asking.shape[1]
    if weight.shape[1] != context + hidden:
        raise ValueError(f"weights of {weight.shape[1]} inputs for contexts of {context} and states of {hidden}")


@final
class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        gates: Tensor,
        weight: Tensor,
        start: Tensor | None,
        memory: Tensor | None,
        layout: RaggedLayout,
        backwards: bool,
        learns: bool,
    ) -> Tensor:
        states = gates.new_empty(len(gates), weight.shape[1], dtype=torch.float32)
        made = _kept(gates, weight) if learns else (None, None, None)
        call("lstm", gates.dtype, _lay_down(gates, weight, (start, memory), layout, states, made, backwards=backwards))
        ctx.save_for_backward(gates, weight, start, memory, states, *made)
        ctx.layout, ctx.backwards = layout, backwards
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_states: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        gates, weight, start, memory, states, *made = ctx.saved_tensors
        cells = _lay_down(gates, weight, (start, memory), ctx.layout, states, made, backwards=ctx.backwards)
        of_states = of_states.contiguous()
        of_gates, of_start = _lay_down_gradients(cells, gates, start, of_states)
        call("lstm_backward", gates.dtype, cells)
        return of_gates, _of_weight(of_gates, made[2], weight), *of_start, None, None, None


@final
class _AttendingLstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        gates: Tensor,
        weight: Tensor,
        asking: Tensor,
        start: Tensor,
        memory: Tensor,
        keys: Tensor,
        values: Tensor,
        vector: Tensor,
        sources: Sources,
        layout: RaggedLayout,
        learns: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = asking.shape[1]
        states = gates.new_empty(len(gates), hidden, dtype=torch.float32)
        made = _kept(gates, weight) if learns else (None, None, None)
        queries = states.new_empty(len(gates), len(asking))
        attended = sources.make_room(len(gates))
        cells = _lay_down(gates, weight, (start, memory), layout, states, made)
        attention = sources.lay_down(queries, attended, len(layout.lengths))
        call("attending_lstm", gates.dtype, cells, attention, address(asking, torch.float32, *asking.shape))
        ctx.save_for_backward(gates, weight, asking, start, memory, *sources.tensors, states, queries, *attended, *made)
        ctx.sources, ctx.layout = sources, layout
        ctx.mark_non_differentiable(attended[1])
        return states, *attended

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_states: Tensor,
        of_contexts: Tensor,
        _: Tensor,
    ) -> tuple[Tensor | None, ...]:
        gates, weight, asking, start, memory, _, values, _, states, queries, *rest = ctx.saved_tensors
        attended, made, sources = (rest[0], rest[1]), rest[2:], ctx.sources
        cells = _lay_down(gates, weight, (start, memory), ctx.layout, states, made)
        of_states = of_states.contiguous()
        of_gates, of_start = _lay_down_gradients(cells, gates, start, of_states)
        of_contexts = of_contexts.contiguous()
        attention, of_queries, of_sources = sources.lay_down_gradients(
            queries, attended, of_contexts, len(ctx.layout.lengths)
        )
        call("attending_lstm_backward", gates.dtype, cells, attention, address(asking, torch.float32, *asking.shape))
        of_weight = _of_weight(of_gates, made[2], weight)
        asked = made[2][:, values.shape[1] :].contiguous()
        of_asking = _of_weight(of_queries.to(gates.dtype), asked, asking)
        return of_gates, of_weight, of_asking, *of_start, *of_sources, None, None, None


@final
class _ConditionalLstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        gates: Tensor,
        known: Tensor,
        weight: Tensor,
        second: Tensor,
        asking: Tensor,
        start: Tensor,
        memory: Tensor,
        keys: Tensor,
        values: Tensor,
        vector: Tensor,
        sources: Sources,
        layout: RaggedLayout,
        learns: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape = len(gates), weight.shape[1]
        between, states = (gates.new_empty(shape, dtype=torch.float32) for _ in range(2))
        made = (*_kept(gates, weight), *_kept(known, second)) if learns else (None,) * 6
        one = _lay_down(gates, weight, (start, memory), layout, between, made[:3])
        other = _lay_down(known, second, (None, None), layout, states, made[3:])
        queries, attended = states.new_empty(len(gates), len(asking)), sources.make_room(len(gates))
        place = address(asking, torch.float32, *asking.shape)
        call(
            "conditional_lstm", gates.dtype, one, other, sources.lay_down(queries, attended, len(layout.lengths)), place
        )
        given = gates, known, weight, second, asking, start, memory, *sources.tensors
        ctx.save_for_backward(*given, between, states, queries, *attended, *made)
        ctx.sources, ctx.layout = sources, layout
        ctx.mark_non_differentiable(attended[1])
        return states, *attended

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_states: Tensor,
        of_contexts: Tensor,
        _: Tensor,
    ) -> tuple[Tensor | None, ...]:
        gates, known, weight, second, asking, start, memory, *rest = ctx.saved_tensors
        _, values, _, between, states, queries, contexts, weights = rest[:8]
        attended = contexts, weights
        made, sources, layout = rest[8:], ctx.sources, ctx.layout
        one = _lay_down(gates, weight, (start, memory), layout, between, made[:3])
        other = _lay_down(known, second, (None, None), layout, states, made[3:])
        of_states = of_states.contiguous()
        of_gates, of_start = _lay_down_gradients(one, gates, start, None)
        of_known = _lay_down_gradients(other, known, None, of_states)[0]
        of_contexts = of_contexts.contiguous()
        attention, of_queries, of_sources = sources.lay_down_gradients(
            queries, attended, of_contexts, len(layout.lengths)
        )
        place = address(asking, torch.float32, *asking.shape)
        call("conditional_lstm_backward", gates.dtype, one, other, attention, place)
        of_weights = _of_weight(of_gates, made[2], weight), _of_weight(of_known, made[5], second)
        of_asking = _of_weight(of_queries.to(gates.dtype), made[5][:, values.shape[1] :].contiguous(), asking)
        return of_gates, of_known, *of_weights, of_asking, *of_start, *of_sources, None, None, None


def _kept(gates: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for memories, the gates' values, and what was multiplied with the weights."""
    tokens, width = gates.shape
    memories = gates.new_empty(tokens, width // _GATES, dtype=torch.float32)
    return memories, torch.empty_like(gates, dtype=torch.float32), gates.new_empty(tokens, weight.shape[1])


def _lay_down(
    gates: Tensor,
    weight: Tensor,
    start: tuple[Tensor | None, Tensor | None],
    layout: RaggedLayout,
    states: Tensor,
    made: Any,  # noqa: ANN401
    *,
    backwards: bool = False,
) -> CellsAddress:
    """Where the kernel finds what it reads, and puts what it makes."""
    (tokens, hidden), batch = states.shape, len(layout.lengths)
    single, own = torch.float32, gates.dtype
    rows = [0 if each is None else address(each, single, batch, hidden) for each in start]
    memories, activated, previous = made
    kept = (
        (0, 0, 0)
        if memories is None
        else (
            address(memories, single, tokens, hidden),
            address(activated, single, tokens, _GATES * hidden),
            address(previous, own, tokens, weight.shape[1]),
        )
    )
    return CellsAddress(
        batch,
        hidden,
        address(layout.offsets, torch.int64, batch + 1),
        backwards,
        address(gates, own, tokens, _GATES * hidden),
        address(weight, single, _GATES * hidden, weight.shape[1]),
        *rows,
        address(states, single, tokens, hidden),
        *kept,
    )


def _lay_down_gradients(
    cells: CellsAddress, gates: Tensor, start: Tensor | None, of_states: Tensor | None
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
    """Room for the gradients of the gates and of the start, from that of states; those that nobody sees have none."""
    of_gates = torch.empty_like(gates)
    of_start = (None, None) if start is None else (torch.zeros_like(start), torch.zeros_like(start))
    if of_states is not None:
        cells.of_states = address(of_states, torch.float32, *of_states.shape)
    cells.of_gates = address(of_gates, gates.dtype, *gates.shape)
    if of_start[0] is not None and of_start[1] is not None:
        cells.of_start, cells.of_start_memory = (each.data_ptr() for each in of_start if each is not None)
    return of_gates, of_start


def _of_weight(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of what rows ``x`` were multiplied with."""
    if has_map_rows(gradient.dtype, x, weight):
        of_weight = torch.empty_like(weight)
        map_rows_backward(gradient, x, lay_down([weight], (), [of_weight]), None)
        return of_weight
    return (gradient.T @ x).to(weight.dtype)
