"""The kernels for CUDA devices, run by Triton's interpreter on a processor, beside PyTorch's operations."""

import os

import pytest

# Read when a kernel is made, so before the modules that have them.
os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip(
    "triton", "3.9", reason="Triton, whose interpreter runs these kernels on a processor, is not installed"
)

import torch
from torch.nn import functional as F

from transduce.kernels.dropout import Dropped, dropout
from transduce.kernels.gpu.add_norm import add_norm, add_norm_backward
from transduce.kernels.gpu.attention import attend, attend_backward
from transduce.kernels.gpu.cross_entropy import cross_entropy
from transduce.kernels.gpu.drop import drop
from transduce.kernels.gpu.sizes import Side, Sizes
from transduce.kernels.loss import _differentiate_plainly

ROWS = 7
DROPPED = Dropped(0.3, torch.arange(ROWS) * 977 - 5)
CHANCE = DROPPED.kept, DROPPED.scale


def test_dropout():
    x = torch.randn(ROWS, 50)
    torch.testing.assert_close(drop(x, DROPPED.seeds, *CHANCE), dropout(x, DROPPED))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dropped", [None, DROPPED])
@pytest.mark.parametrize("columns", [3, 50, 64])
def test_sum_and_norm(columns, dropped, biased):
    torch.manual_seed(1)
    x, output = (torch.randn(ROWS, columns, requires_grad=True) for _ in range(2))
    gain, bias, output_bias = (torch.randn(columns, requires_grad=True) for _ in range(3))
    added = output + output_bias if biased else output
    total = x + (added if dropped is None else dropout(added, dropped))
    norm = F.layer_norm(total, (columns,), gain, bias, 1e-5)
    seeds = None if dropped is None else dropped.seeds
    leaves = x, output, gain, bias, *([output_bias] if biased else [])
    plain = [each.detach() for each in leaves]
    given = *plain[:2], plain[4] if biased else None, *plain[2:4], seeds
    made = (
        torch.empty_like(total),
        torch.empty(2, ROWS),
        torch.empty(ROWS, columns, dtype=torch.bfloat16),
        torch.empty_like(total),
    )
    add_norm(given, made, 1e-5, CHANCE)
    torch.testing.assert_close(made[0], total)
    torch.testing.assert_close(made[3], norm)
    torch.testing.assert_close(made[2].float(), norm, rtol=0.01, atol=0.01)

    given = torch.randn(ROWS, columns), torch.randn(ROWS, columns), torch.randn(ROWS, columns).bfloat16()
    objective = (total * given[0]).sum() + (norm * (given[1] + given[2].float())).sum()
    wanted = torch.empty_like(total), torch.empty_like(total)
    sums = add_norm_backward((made[0].detach(), made[1], plain[2], seeds), given, wanted, CHANCE)
    found = (*wanted, *sums) if biased else (*wanted, *sums[:2])
    for each, right in zip(found, torch.autograd.grad(objective, leaves), strict=True):
        torch.testing.assert_close(each, right, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 0.0, 2.0, -0.5])])
@pytest.mark.parametrize("vocabulary", [101, 4096, 5001])
def test_cross_entropy(vocabulary, weights):
    torch.manual_seed(1)
    logits, labels = torch.randn(4, vocabulary) * 3, torch.randint(vocabulary, (4,))
    sums, right = _differentiate_plainly(logits.clone(), labels, 0.1, weights)
    losses = cross_entropy(logits, labels, weights, 0.1)
    torch.testing.assert_close(losses.sum(1), sums)
    torch.testing.assert_close(logits, right, rtol=1e-4, atol=1e-6)


CASES = {
    "blocks": ((7, 1, 90, 18), (2, 13, 3, 77), False, 16, 16),
    "causal blocks": ((7, 1, 90, 18), None, True, 16, 16),
    "whole": ((5, 9, 0), (3, 0, 4), False, 64, 64),
    "causal and whole": ((5, 31), None, True, 8, 24),
}


@pytest.mark.parametrize("case", CASES)
def test_attention(case):
    torch.manual_seed(1)
    asking, asked, causal, d_k, d_v = CASES[case]
    heads, widths = 2, [2 * d_k, 2 * d_k, 2 * d_v]
    lengths = asking, asking if asked is None else asked
    joined = torch.randn(sum(lengths[0]), sum(widths)) if asked is None else None
    rows = (
        [torch.randn(sum(lengths[0]), widths[0]), *torch.randn(sum(lengths[1]), sum(widths[1:])).split(widths[1:], 1)]
        if joined is None
        else joined.split(widths, 1)
    )
    sides = [Side(torch.tensor([0, *each]).cumsum(0).int(), max(each)) for each in lengths]
    output, log_sums = torch.full((len(rows[0]), widths[2]), torch.nan), torch.empty(heads, len(rows[0]))
    attend(rows, output, log_sums, *sides, Sizes(heads, d_k, d_v, 0.3, causal))
    leaves = [each.clone().requires_grad_() for each in rows]
    right = attend_plainly(leaves, lengths, heads, causal=causal)
    torch.testing.assert_close(output, right.detach(), rtol=1e-4, atol=1e-5)

    received, gradients = torch.randn_like(output), [torch.full_like(each, torch.nan) for each in rows]
    attend_backward(rows, output, log_sums, received, gradients, *sides, Sizes(heads, d_k, d_v, 0.3, causal))
    for found, gradient in zip(gradients, torch.autograd.grad((right * received).sum(), leaves), strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-3, atol=1e-4)


def attend_plainly(rows, lengths, heads, *, causal):
    """Sequence after sequence; nothing is gathered where there are no keys."""
    found = []
    parts = [each.split(list(length)) for each, length in zip(rows, (lengths[0], *[lengths[1]] * 2), strict=True)]
    for query, key, value in zip(*parts, strict=True):
        q, k, v = (each.unflatten(1, (heads, -1)) for each in (query, key, value))
        scores = torch.einsum("qhd,khd->hqk", q, k) * 0.3
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))
    return torch.cat(found)
