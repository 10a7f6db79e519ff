"""The training objective: cross-entropy against smoothed labels (section 5.4), fused with the projection before it."""

from typing import Any, Final, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels import gpu
from transduce.kernels.linear_maps import add_wide_product, has_map_rows, lay_down, map_rows, map_rows_backward
from transduce.kernels.native import address, call, has_native
from transduce.kernels.rounded_weights import join_rounded

# So many logits exist at a time: few beside what else a step holds, and enough that adding up the weights' gradient,
# once for each chunk, costs little (2^21 took 1.2 times as long with 8,000 symbols, 1.9 times with 37,000).
_LOGITS: Final = {"cpu": 2**24, "cuda": 2**27}

Loss = tuple[Float[Tensor, ""], Float[Tensor, ""]]


def smoothed_cross_entropy(
    logits: Float[Tensor, "tokens vocabulary"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    weights: Float[Tensor, " tokens"] | None = None,
) -> Loss:
    """The summed objective and the summed cross-entropy without smoothing, in nats.

    The target distribution puts 1 - epsilon on the label and spreads epsilon evenly over the whole vocabulary
    (Szegedy et al. 2015, section 7), so the objective is (1 - epsilon) (-log p[label]) + epsilon mean(-log p).
    ``weights`` multiply each token's objective; a token of weight 0 is left out of both sums.
    """
    objective, nll = _sum(torch.log_softmax(logits.float(), dim=-1), labels, smoothing, weights)
    return objective, nll.detach()


def projected_cross_entropy(
    hidden: Float[Tensor, "tokens model"],
    weight: Float[Tensor, "vocabulary model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    weights: Float[Tensor, " tokens"] | None = None,
) -> Loss:
    """``smoothed_cross_entropy`` of ``hidden @ weight.T``, without ever holding all logits.

    The gradients are computed chunk by chunk along with the loss, so that no logits are kept for the backward pass.
    Products are computed in autocast's type, where that is on; the weights' gradient is summed in float32.
    ``weights`` get no gradient.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        objective, nll = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
            hidden, weight, labels, smoothing, weights, torch.is_grad_enabled()
        )
    return objective, nll


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives the context no type
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        smoothing: float,
        weights: Tensor | None,
        want_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        sums = torch.zeros(2, dtype=torch.float64, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if want_gradients else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if want_gradients else None
        chunk = max(1, _LOGITS.get(hidden.device.type, _LOGITS["cuda"]) // len(weight))
        projection = _Projection(hidden, weight)
        for start in range(0, len(hidden), chunk):
            part = slice(start, start + chunk)
            logits = projection.score(hidden[part])
            of_tokens = None if weights is None else weights[part]
            gradient = _differentiate(logits, labels[part], smoothing, of_tokens, sums)
            if hidden_gradient is not None and weight_gradient is not None:
                projection.differentiate(gradient, hidden[part], hidden_gradient[part], weight_gradient)
        objective, nll = sums.float()
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * factor, weight_gradient * factor, None, None, None, None


@final
class _Projection:
    """Products with the weights, in the type of the rows."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.native = has_map_rows(hidden.dtype, hidden, weight)
        self.weight = weight if self.native or weight.dtype == hidden.dtype else join_rounded([weight], hidden.dtype)

    def score(self, hidden: Tensor) -> Tensor:
        """The logits."""
        if self.native:
            return map_rows(hidden, lay_down([self.weight]))
        return F.linear(hidden, self.weight)

    def differentiate(self, gradient: Tensor, hidden: Tensor, of_hidden: Tensor, of_weight: Tensor) -> None:
        """From the logits' gradient those of the rows, and of the weights, which is added to what is there."""
        if self.native:
            maps = lay_down([self.weight], of_weights=[of_weight])
            map_rows_backward(gradient, hidden, maps, of_hidden, add=True)
        else:
            torch.mm(gradient, self.weight, out=of_hidden)
            add_wide_product(of_weight, gradient.T, hidden)


def _differentiate(logits: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None, sums: Tensor) -> Tensor:
    """The gradient of the objective, softmax(logits) - target distribution, in the logits' type; these are used up.

    The objective and the cross-entropy without smoothing are added to ``sums``.
    """
    if has_native(logits):
        shape, labels = logits.shape, labels.contiguous()
        weights = None if weights is None else weights.float().contiguous()
        given = (
            address(logits, logits.dtype, *shape),
            address(labels, torch.long, shape[0]),
            None if weights is None else address(weights, torch.float32, shape[0]),
        )
        call("cross_entropy", logits.dtype, *given, address(sums, torch.float64, 2), *shape, smoothing)
        return logits
    if gpu.has_triton(logits, labels):
        from transduce.kernels.gpu.cross_entropy import cross_entropy  # noqa: PLC0415 - Triton is read where it is used

        sums += cross_entropy(logits, labels, weights, smoothing).sum(1, dtype=torch.float64)
        return logits
    found, gradient = _differentiate_plainly(logits, labels, smoothing, weights)
    sums += found
    return gradient


def _differentiate_plainly(
    logits: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    label, share = labels.unsqueeze(1), smoothing / logits.shape[1]
    log_probability = torch.log_softmax(logits, dim=1, dtype=torch.float32)
    of_label = log_probability.gather(1, label)
    sums = torch.stack(_sum(log_probability, labels, smoothing, weights))
    # Each pass over so many numbers counts: none is in float32 where the logits are in bfloat16.
    gradient = torch.exp(log_probability, out=logits).sub_(share)
    gradient.scatter_(1, label, (of_label.exp() - share - (1 - smoothing)).to(logits.dtype))
    if weights is not None:
        gradient = gradient.mul_(weights.unsqueeze(1)).masked_fill_((weights == 0).unsqueeze(1), 0)
    return sums, gradient


def _sum(log_probability: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The objective and the cross-entropy without smoothing, of the tokens whose weight is not 0."""
    nll, uniform = -log_probability.gather(-1, labels.unsqueeze(-1)).squeeze(-1), -log_probability.mean(dim=-1)
    if weights is None:
        return (1 - smoothing) * nll.sum() + smoothing * uniform.sum(), nll.sum()
    nll, uniform = (each.where(weights != 0, 0) for each in (nll, uniform))
    return (1 - smoothing) * (weights * nll).sum() + smoothing * (weights * uniform).sum(), nll.sum()
