"""How large the tensors are that attention makes: n^2 in the plain way, and far less in the others."""

import math

import pytest
import torch

from transduce.kernels import Dropped, Mask, Relative, Scoring, attend, attention, chunked

pytest_plugins = ["allocations"]

N, HEADS, WIDTH = 2003, 2, 3  # batch 1


def run(allocations, length, mask, scoring=None, dropped=0.0):
    """What forward and backward make."""
    inputs = [torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3)]
    with allocations() as made:
        attend(*inputs, mask, scoring or Scoring(), Dropped(dropped)).sum().backward()
    assert all(each.grad is not None for each in inputs)
    return made


def test_the_tool_sees_forward_and_backward(allocations):
    x = torch.randn(97, 1, requires_grad=True)
    with allocations() as made:
        y = x @ torch.ones(1, 89)
    assert (made.largest, made.total) == (97 * 89, 97 * 89 + 89)
    with allocations() as made:
        assert x.expand(97, 1013).T.shape == (1013, 97)  # a view
        x.detach().mul_(1)
    assert made.total == 0
    with allocations() as made:
        y.square().sum().backward()  # its gradients are as large as y
    assert made.largest == 97 * 89

    class Wasteful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.ones(211, 211)[0, 0] * gradient

    made_by_forward, made_by_backward = allocations(), allocations()
    with made_by_forward:
        loss = Wasteful.apply(x).sum()
    with made_by_backward:
        loss.backward()
    assert made_by_forward.largest < 211 * 211 == made_by_backward.largest


def test_the_plain_way_holds_every_weight(allocations):
    """What the other ways are measured against: with a tool that saw nothing, they would pass too."""
    assert run(allocations, 199, Mask()).largest == HEADS * 199 * 199


def test_torchs_own_way_holds_no_weight(allocations):
    """Of long sequences, from 200 symbols on: nothing is larger than queries, keys and values."""
    assert run(allocations, 200, Mask()).largest == HEADS * 200 * WIDTH


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["product", "additive", "relative", "dropout", "padding"])
def test_restricted_attention_is_linear(allocations, kind, causal):
    """Each query meets three blocks of 16 keys at most: 48 scores, or 48 x d_k hidden units; and never n."""
    scorings = {
        "additive": Scoring(additive=torch.randn(HEADS, WIDTH, requires_grad=True)),
        "relative": Scoring(relative=Relative(*torch.randn(2, 7, WIDTH, requires_grad=True).unbind())),
    }
    made = []
    for length in (N, 2 * N):
        real = torch.arange(length) < torch.tensor([[length - 5]])
        mask = Mask(real if kind == "padding" else None, causal=causal, window=11)
        made.append(run(allocations, length, mask, scorings.get(kind), 0.3 if kind == "dropout" else 0.0))
    once, twice = made
    blocks, width = math.ceil(N / 16), 32 if causal else 48
    assert once.largest <= HEADS * blocks * 16 * width * (WIDTH if kind == "additive" else 1) < N * N
    # A block more or less, and what does not grow.
    assert twice.largest / once.largest == pytest.approx(2, rel=0.02)
    assert twice.total / once.total == pytest.approx(2, rel=0.02)


def test_a_step_of_decoding_looks_no_farther_back_than_it_may(allocations):
    """One query after a long past: only its neighbourhood is compared."""
    query, key = torch.randn(1, HEADS, 1, WIDTH), torch.randn(1, HEADS, N, WIDTH)
    with allocations() as made:
        attend(query, key, key, Mask(window=11))
    assert made.total < 20 * HEADS * 12 * WIDTH


@pytest.mark.parametrize(("length", "dropped"), [(1009, 0.3), (N, 0.0)])
def test_chunks_take_the_square_root(allocations, monkeypatch, length, dropped):
    """The largest part is 251 x 3 sqrt(n) scores of each head, or what is as large as the input."""
    monkeypatch.setattr(attention, "_WEIGHTS", 0)
    monkeypatch.setattr(chunked, "_QUERIES", 251)
    monkeypatch.setattr(chunked, "_KEYS", 3)
    made = run(allocations, length, Mask(causal=True), dropped=dropped)
    assert made.largest == max(HEADS * 251 * 3 * math.isqrt(length), HEADS * length * WIDTH) < length * length / 10


def test_beyond_the_limit_no_tensor_is_as_large_as_the_weights(allocations, monkeypatch):
    """The constants as they are, but for the limit: 256 queries by 4 sqrt(4,099) = 256 keys of each head."""
    monkeypatch.setattr(attention, "_WEIGHTS", HEADS * 4099 * 4099 - 1)
    assert run(allocations, 4099, Mask(causal=True)).largest == HEADS * 256 * 4 * 64
