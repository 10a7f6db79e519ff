"""The training objective: cross-entropy against smoothed labels (section 5.4), fused with the projection before it."""

from typing import Any, Final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

# So many logits exist at a time: few enough to stay near the processor, enough to fill its matrix units.
_LOGITS: Final = {"cpu": 2**21, "cuda": 2**27}

Loss = tuple[Float[Tensor, ""], Float[Tensor, ""]]


def smoothed_cross_entropy(
    logits: Float[Tensor, "tokens vocabulary"], labels: Int[Tensor, " tokens"], smoothing: float
) -> Loss:
    """The summed objective and the summed cross-entropy without smoothing, in nats.

    The target distribution puts 1 - epsilon on the label and spreads epsilon evenly over the whole vocabulary
    (Szegedy et al. 2015, section 7), so the objective is (1 - epsilon) (-log p[label]) + epsilon mean(-log p).
    """
    log_probability = torch.log_softmax(logits.float(), dim=-1)
    nll = -log_probability.gather(-1, labels.unsqueeze(-1)).sum()
    uniform = -log_probability.mean(dim=-1).sum()
    return (1 - smoothing) * nll + smoothing * uniform, nll.detach()


def projected_cross_entropy(
    hidden: Float[Tensor, "tokens model"],
    weight: Float[Tensor, "vocabulary model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> Loss:
    """``smoothed_cross_entropy`` of ``hidden @ weight.T``, without ever holding all logits.

    The gradients are computed chunk by chunk along with the loss, so that no logits are kept for the backward pass.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    with torch.autocast(device, enabled=False):
        objective, nll = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
            hidden, weight, labels, smoothing, torch.is_grad_enabled()
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
        want_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        objective = torch.zeros((), device=hidden.device)
        nll = torch.zeros_like(objective)
        hidden_gradient = torch.empty_like(hidden) if want_gradients else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if want_gradients else None
        chunk = max(1, _LOGITS.get(hidden.device.type, _LOGITS["cuda"]) // len(weight))
        for start in range(0, len(hidden), chunk):
            part = slice(start, start + chunk)
            logits = F.linear(hidden[part], weight).float()
            label = labels[part].unsqueeze(1)
            log_total = logits.logsumexp(dim=-1, keepdim=True)
            part_nll = (log_total - logits.gather(1, label)).sum()
            uniform = (log_total.squeeze(1) - logits.mean(dim=-1)).sum()
            nll += part_nll
            objective += (1 - smoothing) * part_nll + smoothing * uniform
            if hidden_gradient is not None and weight_gradient is not None:
                # d objective / d logits = softmax(logits) - target distribution, written over the logits.
                gradient = logits.sub_(log_total).exp_().sub_(smoothing / logits.shape[1])
                gradient.scatter_add_(1, label, gradient.new_full(label.shape, smoothing - 1))
                gradient = gradient.to(hidden.dtype)
                torch.mm(gradient, weight, out=hidden_gradient[part])
                weight_gradient += gradient.T @ hidden[part]
        ctx.weight_dtype = weight.dtype
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * factor, (weight_gradient * factor).to(ctx.weight_dtype), None, None, None
