"""Attention over sequences laid end to end is each sequence's own, whichever way it is computed."""

import pytest
import torch

from transduce.kernels import Dropped, Heads, RaggedAttention, RaggedLayout, Scoring, attend_ragged, native
from transduce.kernels.ragged_attention import _LONGEST

CPU = torch.device("cpu")
# Query and key widths, value widths, and lengths that are no multiples of a vector's. Rows of EVEN are whole words.
HEADS, EVEN = Heads(3, 5, 19), Heads(2, 32, 18)
QUERIES, KEYS = (7, 1, 33, 18), (1, 17, 40, 3)
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}


def pack(*lengths):
    return RaggedLayout.of(torch.tensor(lengths), max(lengths), CPU)


def one_by_one(query, key, value, queries, keys, causal, factor=None, heads=HEADS):
    """softmax(0.3 Q K^T) V of each sequence and head on its own, in float64, weights times ``factor``."""
    outputs = []
    for b, (m, n) in enumerate(zip(queries, keys, strict=True)):
        first, memory = sum(queries[:b]), sum(keys[:b])
        side_by_side = []
        for h in range(heads.number):
            q = query[first : first + m, h * heads.d_k : (h + 1) * heads.d_k]
            k = key[memory : memory + n, h * heads.d_k : (h + 1) * heads.d_k]
            v = value[memory : memory + n, h * heads.d_v : (h + 1) * heads.d_v]
            scores = 0.3 * q.double() @ k.double().T
            if causal:
                scores = scores.masked_fill(torch.ones(m, n).triu(1).bool(), -torch.inf)
            weights = scores.softmax(-1)
            side_by_side.append((weights if factor is None else weights * factor[b][h]) @ v.double())
        outputs.append(torch.cat(side_by_side, dim=1))
    return torch.cat(outputs)


def tensors(dtype, queries, keys, heads=HEADS):
    torch.manual_seed(3)
    sizes = [(sum(n), width) for n, width in zip((queries, keys, keys), heads.widths, strict=True)]
    return [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]


def run(parts, queries, keys, *, own, causal=False, dropped=0.0, heads=HEADS):
    query, key, value = parts
    projected = torch.cat([query, key, value], dim=1) if own else query
    memory = None if own else torch.cat([key, value], dim=1)
    settings = {"causal": causal, "dropped": Dropped(dropped)}
    attention = RaggedAttention(pack(*queries), pack(*keys), heads, Scoring(scale=0.3), **settings)
    return attend_ragged(projected, memory, attention)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("own", "causal"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("heads", [HEADS, EVEN])
def test_values_and_gradients_are_those_of_each_sequence(own, causal, dtype, heads):
    keys = QUERIES if own else KEYS
    parts = tensors(dtype, QUERIES, keys, heads)
    found = run(parts, QUERIES, keys, own=own, causal=causal, heads=heads)
    expected = one_by_one(*parts, QUERIES, keys, causal, heads=heads)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(found.double(), expected, **close)
    received = torch.randn_like(found)
    gradients = torch.autograd.grad(found, parts, received)
    for each, right in zip(gradients, torch.autograd.grad(expected, parts, received.double()), strict=True):
        torch.testing.assert_close(each.double(), right.double(), rtol=close["rtol"], atol=3 * close["atol"])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("large", [1e1, 1e2, 1e4])
def test_weights_of_large_scores_are_the_same_in_both_passes(large):
    """A softmax that has chosen has no gradient, however large the scores are, and values get that of their weights."""
    query, key, value = tensors(torch.float32, QUERIES, QUERIES)
    query, key = ((large * each.detach()).requires_grad_() for each in (query, key))
    parts = query, key, value
    found = run(parts, QUERIES, QUERIES, own=True)
    received = torch.randn_like(found)
    expected = one_by_one(*parts, QUERIES, QUERIES, causal=False)
    right = torch.autograd.grad(expected, parts, received.double())
    for each, exact in zip(torch.autograd.grad(found, parts, received), right, strict=True):
        torch.testing.assert_close(each, exact, rtol=1e-3, atol=1e-4 * large)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_falls_on_weights_and_gradients_alike(causal):
    """Values that are one number at one key and 0 at all others show each weight; their gradients, what was drawn."""
    lengths = (7, 1, 13)
    query, key, _ = tensors(torch.float32, lengths, lengths)
    value = torch.zeros(sum(lengths), HEADS.widths[2])
    for row, column in enumerate(pack(*lengths).columns.tolist()):
        value[row, column :: HEADS.d_v] = 1
    parts = [query, key, value.requires_grad_()]
    dropped = run(parts, lengths, lengths, own=True, causal=causal, dropped=0.4)
    whole = one_by_one(*parts, lengths, lengths, causal)
    share = (dropped / whole).detach().double()
    drawn = share[whole > 0]
    assert torch.logical_or(drawn == 0, (drawn - 1 / 0.6).abs() < 1e-3).all()
    assert 0.3 < (drawn == 0).float().mean() < 0.5
    rows = torch.split(torch.nan_to_num(share), lengths)
    factor = [[part[:, h * HEADS.d_v :][:, : len(part)] for h in range(HEADS.number)] for part in rows]
    expected = one_by_one(*parts, lengths, lengths, causal, factor)
    received = torch.randn_like(dropped)
    gradients = torch.autograd.grad(dropped, parts, received)
    right = torch.autograd.grad(expected, parts, received.double())
    torch.testing.assert_close(gradients, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("longest", [_LONGEST, _LONGEST + 1])
def test_long_sequences_are_left_to_matrix_products(longest, way, monkeypatch):
    called = []
    monkeypatch.setattr("transduce.kernels.ragged_attention.call", lambda name, *_: called.append(name))
    run(tensors(torch.float32, (longest,), (longest,)), (longest,), (longest,), own=True)
    assert called == (["attention"] if way != "plain" and longest == _LONGEST else [])


@pytest.mark.usefixtures("way")
def test_other_numbers_than_the_kernels_know_are_computed_plainly():
    parts = tensors(torch.float64, QUERIES, QUERIES)
    assert not native.has_native(parts[0])
    found, expected = run(parts, QUERIES, QUERIES, own=True), one_by_one(*parts, QUERIES, QUERIES, causal=False)
    torch.testing.assert_close(found, expected)
