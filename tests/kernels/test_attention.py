"""Attention by matrices against attention by two loops, by hand, and against torch."""

import math
from itertools import product

import pytest
import torch
from torch.nn import functional as F

from transduce.kernels import Dropped, Mask, Relative, Scoring, attend, attention, attention_weights
from transduce.kernels.dropout import WHOLE
from transduce.kernels.scores import attend_plainly

pytest_plugins = ["naive_attention"]

CPU = torch.device("cpu")
BATCH, HEADS, D_K, D_V, KEYS = 2, 2, 5, 3, 7
# The second sentence has three keys of padding behind, and the first one in front, as histories have.
PADDED = torch.tensor([[False] + [True] * 6, [True] * 4 + [False] * 3])
LONG = torch.arange(97) < torch.tensor([[97], [61]])
MASKS = {
    "everything": Mask(),
    "padding": Mask(PADDED),
    "causal": Mask(causal=True),
    "window": Mask(window=2),
    "causal reach": Mask(causal=True, window=2),
    "all at once": Mask(PADDED, causal=True, window=3),
}


def leaves(*shape: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(each, dtype=torch.float64, requires_grad=True) for each in shape]


def inputs(queries: int) -> list[torch.Tensor]:
    return leaves((BATCH, HEADS, queries, D_K), (BATCH, HEADS, KEYS, D_K), (BATCH, HEADS, KEYS, D_V))


def scoring(kind: str) -> tuple[Scoring, list[torch.Tensor]]:
    """A way of scoring and its weights; distances are clipped at 2, which most keys are farther away than."""
    additive, bilinear, keys, values = leaves((HEADS, D_K), (HEADS, D_K, D_K), (5, D_K), (5, D_V))
    match kind:
        case "product":
            return Scoring(), []
        case "scaled":
            return Scoring(scale=0.3), []
        case "bilinear":
            return Scoring(bilinear=bilinear, scale=0.3), [bilinear]
        case "additive":
            return Scoring(additive=additive), [additive]
        case "relative":
            return Scoring(relative=Relative(keys, values)), [keys, values]
        case _:
            return Scoring(additive=additive, relative=Relative(keys, values)), [additive, keys, values]


@pytest.mark.parametrize("kind", ["product", "scaled", "bilinear", "additive", "relative", "additive and relative"])
@pytest.mark.parametrize(("mask", "queries"), [*product(MASKS, [KEYS, 3])])
def test_values_and_gradients_equal_the_loops(naive, mask, queries, kind):
    tensors = inputs(queries)
    how, weights = scoring(kind)
    found, expected = attend(*tensors, MASKS[mask], how), naive(*tensors, MASKS[mask], how)
    # A query that may look at nothing has no result that means anything.
    received = torch.randn_like(expected).masked_fill(expected == 0, 0)
    torch.testing.assert_close(found.where(expected != 0, 0), expected)
    gradients = [torch.autograd.grad((each * received).sum(), tensors + weights) for each in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_by_hand():
    query = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[math.log(3), 0, 0, 0], [0.0, 1, 0, 0], [9.0, 9, 9, 9]]]])
    value = torch.tensor([[[[4.0], [8.0], [1000.0]]]])
    mask = Mask(torch.tensor([[True, True, False]]))
    # q k = log 3 and 0: weights 3/4 and 1/4, and nothing for the key that is not allowed.
    torch.testing.assert_close(attention_weights(query, key, mask), torch.tensor([[[[0.75, 0.25, 0.0]]]]))
    torch.testing.assert_close(attend(query, key, value, mask), torch.tensor([[[[5.0]]]]))


def test_relative_positions_by_hand():
    """Distances count from the query to the key: -1 is the key before, and those farther than k = 1 count as 1."""
    keys, values = torch.tensor([[0.0], [math.log(2)], [0.0]]), torch.tensor([[10.0], [20.0], [30.0]])
    query, nothing = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 3, 1)
    # The query stands in the last of three columns: distances -2 (as -1), -1 and 0 with scores 0, 0 and log 2.
    found = attend(query, nothing, nothing, Mask(), Scoring(relative=Relative(keys, values)))
    assert found.item() == pytest.approx((10 + 10 + 2 * 20) / 4)


@pytest.mark.parametrize("masked", [False, True])
def test_agrees_with_torch(masked):
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 13)
    real = torch.rand(2, 11) < 0.5 if masked else None
    if real is not None:
        real[:, 0] = True
    expected = F.scaled_dot_product_attention(
        query, key, value, None if real is None else real[:, None, None], scale=1.0
    )
    torch.testing.assert_close(attend(query, key, value, Mask(real)), expected)


def test_weights_are_what_the_values_are_weighed_by():
    query, key, _ = inputs(KEYS)
    how, _ = scoring("additive")
    unit = torch.eye(KEYS, dtype=torch.float64).expand(BATCH, HEADS, -1, -1)
    for mask in MASKS.values():
        torch.testing.assert_close(attend(query, key, unit, mask, how), attention_weights(query, key, mask, how))


@pytest.mark.parametrize(
    ("mask", "queries", "kind", "limit", "expected"),
    [
        (Mask(), 97, "product", 2 * 2 * 97 * 97, "plain"),
        (Mask(), 97, "product", 2 * 2 * 97 * 97 - 1, "chunks"),
        (Mask(LONG), 89, "product", 0, "chunks"),
        (Mask(), 97, "relative", 0, "plain"),  # only the plain way knows other scores
        (Mask(), 97, "additive", 0, "plain"),
        (Mask(window=31), 97, "additive", 2**26, "nearby"),  # 97 > 3 x 31
        (Mask(window=33), 97, "product", 2**26, "plain"),  # three blocks are all there is
        (Mask(window=5), 97, "product", 0, "nearby"),
        (Mask(window=5, causal=True), 97, "product", 2**26, "nearby"),
        (Mask(window=5), 89, "product", 2**26, "plain"),  # with a past before the queries
        (Mask(window=5), 89, "product", 0, "chunks"),
    ],
)
def test_the_way_follows_from_the_sizes(monkeypatch, mask, queries, kind, limit, expected):
    taken = []
    for way, name in (("nearby", "attend_locally"), ("chunks", "attend_in_chunks"), ("plain", "attend_plainly")):
        original = getattr(attention, name)
        monkeypatch.setattr(attention, name, lambda *a, w=way, o=original: taken.append(w) or o(*a))
    query, key, value = leaves((BATCH, HEADS, queries, D_K), (BATCH, HEADS, 97, D_K), (BATCH, HEADS, 97, D_V))
    how, _ = scoring(kind)
    monkeypatch.setattr(attention, "_WEIGHTS", limit)
    found = attend(query, key, value, mask, how)
    assert taken == [expected]
    allowed, distance = mask.matrix(queries, 97, CPU), torch.arange(97) - torch.arange(97 - queries, 97).unsqueeze(1)
    torch.testing.assert_close(found, attend_plainly(query, key, value, allowed, distance, how))


FAR = torch.arange(233) < torch.tensor([[233], [61]])


@pytest.mark.parametrize(
    ("mask", "queries", "limit", "change", "expected"),
    [
        (Mask(), 233, 2**26, {}, "torch"),
        (Mask(), 233, 0, {}, "torch"),  # it makes no weights
        (Mask(FAR), 217, 0, {}, "torch"),
        (Mask(causal=True), 233, 2**26, {}, "torch"),
        (Mask(FAR, causal=True), 233, 2**26, {}, "torch"),
        (Mask(FAR, causal=True), 233, 0, {}, "chunks"),  # the mask would be as large as the weights
        (Mask(window=77), 217, 2**26, {}, "torch"),
        (Mask(torch.tensor([[True], [False]]).expand(2, 233)), 233, 2**26, {}, "torch"),  # whose result nobody reads
        (Mask(), 199, 2**26, {}, "plain"),
        (Mask(), 233, 2**26, {"dtype": torch.float64}, "plain"),
        (Mask(), 233, 2**26, {"dtype": torch.bfloat16}, "plain"),
        (Mask(), 233, 2**26, {"kind": "bilinear"}, "plain"),
        (Mask(), 233, 2**26, {"dropped": Dropped(0.3, torch.arange(2 * 233).view(2, 233))}, "plain"),
    ],
)
def test_long_sequences_in_float32_are_torchs_own(monkeypatch, mask, queries, limit, change, expected):
    taken = []
    ways = {"torch": "_attend_in_torch", "chunks": "attend_in_chunks", "plain": "attend_plainly"}
    for way, name in ways.items():
        original = getattr(attention, name)
        monkeypatch.setattr(attention, name, lambda *a, w=way, o=original: taken.append(w) or o(*a))
    shapes = (BATCH, HEADS, queries, D_K), (BATCH, HEADS, 233, D_K), (BATCH, HEADS, 233, D_V)
    dtype, dropped = change.get("dtype", torch.float32), change.get("dropped", WHOLE)
    tensors = [each.detach().to(dtype).requires_grad_() for each in leaves(*shapes)]
    how = Scoring(scale=0.3) if "kind" not in change else Scoring(bilinear=scoring("bilinear")[1][0].float())
    monkeypatch.setattr(attention, "_WEIGHTS", limit)
    found = attend(*tensors, mask, how, dropped)
    assert taken == [expected]
    allowed, distance = (
        mask.matrix(queries, 233, CPU),
        torch.arange(233) - torch.arange(233 - queries, 233).unsqueeze(1),
    )
    others = [each.detach().clone().requires_grad_() for each in tensors]
    plain = attend_plainly(*others, allowed, distance, how, dropped.heads(HEADS, (BATCH, queries), CPU))
    # Of padding's queries, and of those that see nothing, nobody reads the result.
    real = torch.ones(2, queries) if mask.real is None else mask.real[:, -queries:].float()
    for each in (found, plain):
        assert not each.isnan().any()
        (each * real[:, None, :, None].to(dtype)).square().sum().backward()
    read = real.bool().unsqueeze(1).expand(-1, HEADS, -1)
    torch.testing.assert_close(found[read], plain[read])
    for one, other in zip(tensors, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_mixed_precision_is_not_for_torchs_own(monkeypatch):
    monkeypatch.setattr(attention, "_attend_in_torch", None)
    tensors = [each.detach().float() for each in leaves(*[(1, 1, 233, D_K)] * 3)]
    with torch.autocast("cpu", torch.bfloat16):
        attend(*tensors, Mask())
