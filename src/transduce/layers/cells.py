"""One step of a recurrent cell, and products in a loop whose weights are differentiated once, behind it."""

from typing import Any, assert_never, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.config.recurrent import Cell

# What a cell remembers: (h, c) of an LSTM, (h,) of a GRU.
CellState = tuple[Float[Tensor, "rows hidden"], ...]


def advance_cell(
    cell: Cell,
    from_input: Float[Tensor, "rows gates"],
    from_state: Float[Tensor, "rows gates"] | None,
    state: CellState,
) -> CellState:
    """The state behind one more input, from the gates' parts W x + b and U h + b', in PyTorch's order.

    An LSTM adds them up, so that its ``from_input`` may be the sum already.
    """
    match cell:
        case "lstm":
            gates = from_input if from_state is None else from_input + from_state
            sigmoid = torch.sigmoid(gates)
            keep, forget, _, show = sigmoid.chunk(4, dim=-1)
            new = torch.tanh(gates.chunk(4, dim=-1)[2])
            memory = forget * state[1] + keep * new
            return show * torch.tanh(memory), memory
        case "gru":
            assert from_state is not None
            reset, update, new = from_input.chunk(3, dim=-1)
            of_reset, of_update, of_new = from_state.chunk(3, dim=-1)
            candidate = torch.tanh(new + torch.sigmoid(reset + of_reset) * of_new)
            return (torch.lerp(candidate, state[0], torch.sigmoid(update + of_update)),)
        case _:
            assert_never(cell)


@final
class LoopProduct:
    """X W^T + b in every step of a loop; the gradients of W and b are one product of all steps, behind the last.

    In each step they would be a matrix of W's size, written and added up: that costs more than the product itself,
    where a step has few rows.
    """

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._steps: list[_Part] = []
        learns = torch.is_grad_enabled() and weight.requires_grad
        self._end = _LoopEnd.apply(weight, bias, self._steps) if learns else None  # type: ignore[no-untyped-call]

    def __call__(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The product of one step."""
        if self._end is None:
            return F.linear(x, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.detach()
        given = self._end, self.weight.detach(), bias, self._steps
        result: Tensor = _LoopStep.apply(x, *given)  # type: ignore[no-untyped-call]
        return result


# A step's rows and their gradients, and the number of the backward pass that left them.
_Part = tuple[int, Tensor, Tensor]


class _LoopStep(torch.autograd.Function):
    """A step's rows and gradients are left in a list, which ``_LoopEnd`` differentiates the weights from.

    Every step depends on it by a number that is 0, so that autograd comes to it behind all of them. A backward pass
    that asks for other gradients alone never comes to it: what it has left is told apart by its number.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        end: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        steps: list[_Part],
    ) -> Tensor:
        ctx.save_for_backward(x, weight, end)
        ctx.steps = steps
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, end = ctx.saved_tensors
        ctx.steps.append((torch._C._current_graph_task_id(), x, gradient))
        return gradient @ weight if ctx.needs_input_grad[0] else None, torch.zeros_like(end), None, None, None


class _LoopEnd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, steps: list[_Part]) -> Tensor:  # noqa: ANN401
        ctx.steps, ctx.biased = steps, bias is not None
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor | None, None]:  # noqa: ANN401
        own = torch._C._current_graph_task_id()
        steps = [part[1:] for part in ctx.steps if part[0] == own]
        rows, gradients = (torch.cat(parts) for parts in zip(*steps, strict=True))
        ctx.steps.clear()
        return gradients.T @ rows, gradients.sum(dim=0) if ctx.biased else None, None
