"""The gradient of the smoothed cross-entropy in the place of the logits, in two passes over them."""
# mypy: disable-error-code="untyped-decorator"

from typing import Final, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.gpu.launch import power_of_two

_BLOCK: Final = 4096  # logits that a program has in its registers
_WARPS: Final = 8


def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
    """Overwrite ``logits`` (rows, vocabulary) by the gradient; objective and cross-entropy of each row, (2, rows)."""
    rows, vocabulary = logits.shape
    losses = logits.new_empty(2, rows, dtype=torch.float32)
    if rows:
        _cross_entropy[(rows,)](
            *(logits, labels, weights, losses, rows, vocabulary, smoothing),
            *(weights is not None, min(_BLOCK, power_of_two(vocabulary))),
            num_warps=_WARPS,
        )
    return losses


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _cross_entropy(
    logits, labels, weights, losses, rows, vocabulary, smoothing, HAS_WEIGHTS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * vocabulary
    label = tl.load(labels + row)
    of_label = tl.load(start + label).to(tl.float32)
    # The largest logit so far; each place of a block has sums of its own up to the end.
    largest = -1e30
    exponentials = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, vocabulary, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
        total += tl.where(column < vocabulary, x, 0.0)
        newer = tl.maximum(largest, tl.max(x, 0))
        exponentials = exponentials * tl.exp(largest - newer) + tl.exp(x - newer)
        largest = newer
    normalizer = largest + tl.log(tl.sum(exponentials, 0))
    nll = normalizer - of_label
    objective = (1 - smoothing) * nll + smoothing * (normalizer - tl.sum(total, 0) / vocabulary)
    weight = 1.0
    if HAS_WEIGHTS:
        weight = tl.load(weights + row).to(tl.float32)
        objective = tl.where(weight != 0, objective * weight, 0.0)
        nll = tl.where(weight != 0, nll, 0.0)
    tl.store(losses + row, objective)
    tl.store(losses + rows + row, nll)
    share = smoothing / vocabulary
    for first in range(0, vocabulary, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < vocabulary, other=0).to(tl.float32)
        gradient = tl.exp(x - normalizer) - share
        gradient = tl.where(column == label, gradient - (1 - smoothing), gradient)
        gradient = tl.where(weight != 0, gradient * weight, 0.0)
        tl.store(start + column, gradient.to(logits.dtype.element_ty), mask=column < vocabulary)
