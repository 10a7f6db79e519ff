"""Dropout on attention's weights, whichever way they are computed."""

import pytest
import torch

from transduce.kernels import Dropped, Mask, Scoring, chunked
from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.local import attend_locally
from transduce.kernels.scores import attend_plainly, weigh

CPU = torch.device("cpu")
BATCH, HEADS, LENGTH, D_K, D_V = 2, 3, 61, 5, 7
MASK = Mask(torch.arange(LENGTH) < torch.tensor([[LENGTH], [53]]), causal=True, window=13)
ALLOWED = MASK.matrix(LENGTH, LENGTH, CPU)
SHARE = 0.3


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Keys come seven at a time, the square root of their number, and queries too."""
    monkeypatch.setattr(chunked, "_QUERIES", 7)


def plainly(query, key, value, dropped):
    return attend_plainly(query, key, value, ALLOWED, None, Scoring(), dropped)


def nearby(query, key, value, dropped):
    return attend_locally(query, key, value, MASK, Scoring(), dropped)


def in_chunks(query, key, value, dropped):
    return attend_in_chunks(query, key, value, MASK, dropped)


WAYS = pytest.mark.parametrize("way", [plainly, nearby, in_chunks])


@pytest.fixture
def inputs():
    torch.manual_seed(3)
    widths = (D_K, D_K, D_V)
    return [torch.randn(BATCH, HEADS, LENGTH, width, dtype=torch.float64).requires_grad_() for width in widths]


def weights(query, key):
    """What the values are weighed by without dropout."""
    return weigh(query @ key.transpose(-2, -1), ALLOWED)


def dropped_weights(way, query, key, share=SHARE):
    """With values that are the unit vectors, attention gives the weights themselves."""
    with torch.no_grad():
        return way(query, key, torch.eye(LENGTH, dtype=query.dtype).expand(BATCH, HEADS, -1, -1), Dropped(share))


@WAYS
def test_a_weight_is_left_out_or_scaled(way, inputs):
    query, key, _ = inputs
    found, whole = dropped_weights(way, query, key), weights(query, key).detach()
    kept = found != 0
    torch.testing.assert_close(found[kept], (whole / (1 - SHARE))[kept], rtol=2e-5, atol=0)  # the share is a 2^-16th
    real = whole > 0
    # Five standard deviations of a binomial share.
    tolerance = 5 * (SHARE * (1 - SHARE) / int(real.sum())) ** 0.5
    assert (~kept[real]).double().mean().item() == pytest.approx(SHARE, abs=tolerance)
    assert not kept[~real].any()


@WAYS
def test_the_expectation_is_attention_without_dropout(way, inputs):
    query, key, _ = inputs
    draws, whole = 37, weights(query, key).detach()
    mean = sum(dropped_weights(way, query, key) for _ in range(draws)) / draws
    # A weight's variance is w^2 p / (1 - p): its mean over the draws, in standard deviations, is close to N(0, 1).
    normal = ((mean - whole) / (whole * (SHARE / (1 - SHARE) / draws) ** 0.5))[whole > 0]
    assert normal.abs().max().item() < 6
    assert normal.mean().item() == pytest.approx(0, abs=5 / len(normal) ** 0.5)
    assert normal.square().mean().item() == pytest.approx(1, abs=0.1)


@WAYS
def test_heads_sentences_and_calls_draw_their_own_and_a_seed_draws_the_same(way, inputs):
    query, key, _ = (each[:1, :1].expand(BATCH, HEADS, -1, -1) for each in inputs)
    torch.manual_seed(1)
    first, second = dropped_weights(way, query, key), dropped_weights(way, query, key)
    torch.manual_seed(1)
    assert dropped_weights(way, query, key).equal(first)
    assert not first.equal(second)
    assert not first[:, 0].equal(first[:, 1])
    assert not first[0, :, :53].equal(first[1, :, :53])


def test_chunks_draw_their_own(inputs):
    unit = torch.eye(LENGTH, dtype=torch.float64).expand(BATCH, HEADS, -1, -1)
    kept = attend_in_chunks(*inputs[:2], unit, Mask(), Dropped(SHARE)) != 0
    blocks = [kept[:, :, i : i + 7, j : j + 7] for i in range(0, 56, 7) for j in range(0, 56, 7)]
    assert len({tuple(block.flatten().tolist()) for block in blocks}) == 64


@WAYS
def test_the_gradients_go_through_the_weights_that_stayed(way, inputs):
    """Given which weights stayed, dropout is a product with constants, and its gradient the plain formula's."""
    query, key, value = inputs
    torch.manual_seed(7)
    kept = dropped_weights(way, query, key) / weights(query, key).detach().clamp(min=1e-300)
    torch.manual_seed(7)
    found = way(query, key, value, Dropped(SHARE))
    expected = (weights(query, key) * kept) @ value
    torch.testing.assert_close(found, expected)
    received = torch.randn_like(found)
    gradients = [torch.autograd.grad((each * received).sum(), inputs) for each in (found, expected)]
    torch.testing.assert_close(*gradients)


@WAYS
def test_nothing_to_drop_draws_nothing(way, inputs):
    state = torch.get_rng_state()
    torch.testing.assert_close(dropped_weights(way, *inputs[:2], share=0.0), weights(*inputs[:2]))
    assert torch.get_rng_state().equal(state)
