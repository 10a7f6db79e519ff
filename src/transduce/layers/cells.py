"""One step of a recurrent cell, and products in a loop whose weights are differentiated once, behind it."""

from collections.abc import Iterator
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
    """X W^T + b in each of ``steps`` steps of a loop over so many ``rows``; W and b are differentiated once, behind it.

    In each step their gradients would be matrices of W's size, written and added up: that costs more than the product
    itself, where a step has few rows.

    Every step is given its place in a tensor of zeros, (steps, rows, outputs), as if that were added to the product:
    autograd puts the steps' gradients together there, and comes to it behind all of them. What a backward pass did not
    visit has zeros there, and one that asks for other gradients alone never comes to it.
    """

    def __init__(
        self,
        weight: Float[Tensor, "outputs inputs"],
        bias: Float[Tensor, " outputs"] | None = None,
        *,
        steps: int,
        rows: int,
    ) -> None:
        self.weight, self.bias = weight, bias
        self._inputs: list[Tensor] = []
        self._places: Iterator[Tensor] | None = None
        if torch.is_grad_enabled() and weight.requires_grad:
            zeros: Tensor = _LoopEnd.apply(weight, bias, self._inputs, steps, rows)  # type: ignore[no-untyped-call]
            self._places = iter(zeros.unbind())

    def __call__(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The product of one step."""
        if self._places is None:
            return F.linear(x, self.weight, self.bias)
        self._inputs.append(x.detach())
        bias = None if self.bias is None else self.bias.detach()
        result: Tensor = _LoopStep.apply(x, next(self._places), self.weight.detach(), bias)  # type: ignore[no-untyped-call]
        return result


class _LoopStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        x: Tensor,
        place: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (weight,) = ctx.saved_tensors
        return gradient @ weight if ctx.needs_input_grad[0] else None, gradient, None, None


class _LoopEnd(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        weight: Tensor,
        bias: Tensor | None,
        inputs: list[Tensor],
        steps: int,
        rows: int,
    ) -> Tensor:
        ctx.inputs, ctx.biased = inputs, bias is not None
        return weight.new_zeros(()).expand(steps, rows, len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        taken = gradients[: len(ctx.inputs)].flatten(0, 1)
        return taken.T @ torch.cat(ctx.inputs), taken.sum(dim=0) if ctx.biased else None, None, None, None
