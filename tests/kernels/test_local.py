"""Attention block by block equals attention with the same mask over everything."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.kernels import Dropped, Mask, Relative, Scoring, local
from transduce.kernels.local import attend_locally, block_size
from transduce.kernels.scores import attend_plainly

CPU = torch.device("cpu")
HEADS, D_K, D_V = 2, 3, 5
KINDS = ("product", "additive", "relative", "additive and relative")


def scoring(kind: str) -> tuple[Scoring, list[torch.Tensor]]:
    """Distances are clipped at 3, which a longer window goes beyond."""
    additive, keys, values = (torch.randn(*shape, dtype=torch.float64) for shape in ((HEADS, D_K), (7, D_K), (7, D_V)))
    weights = [weight.requires_grad_() for weight in (additive, keys, values)]
    how = Scoring(
        additive=additive if "additive" in kind else None,
        relative=Relative(keys, values) if "relative" in kind else None,
    )
    return how, weights[0 if "additive" in kind else 1 : 3 if "relative" in kind else 1]


def tensors(batch: int, length: int) -> list[torch.Tensor]:
    widths = (D_K, D_K, D_V)
    return [torch.randn(batch, HEADS, length, width, dtype=torch.float64).requires_grad_() for width in widths]


def everything(inputs: list[torch.Tensor], mask: Mask, how: Scoring) -> torch.Tensor:
    """The same over all keys, each weight held."""
    query, key, value = inputs
    length = query.shape[2]
    distance = torch.arange(length) - torch.arange(length).unsqueeze(1)
    return attend_plainly(query, key, value, mask.matrix(length, length, CPU), distance, how)


def assert_equal(inputs: list[torch.Tensor], mask: Mask, how: Scoring, weights: list[torch.Tensor]) -> None:
    query, key, value = inputs
    found, expected = attend_locally(query, key, value, mask, how), everything(inputs, mask, how)
    allowed = mask.matrix(found.shape[2], found.shape[2], CPU)
    assert allowed is not None
    # Nobody reads what a query gathers that may look at nothing; it only must be a number.
    read = allowed.any(-1)[:, None, :, None].expand_as(found)
    assert found.isfinite().all()
    torch.testing.assert_close(found[read], expected[read])
    received = torch.randn_like(found) * read
    leaves = inputs + weights
    gradients = [torch.autograd.grad((each * received).sum(), leaves, allow_unused=True) for each in (found, expected)]
    torch.testing.assert_close(*gradients)


@given(
    length=st.integers(1, 41),
    window=st.integers(0, 23),
    causal=st.booleans(),
    smallest_block=st.sampled_from([1, 2, 3, 7, 16]),
    paddings=st.lists(st.tuples(st.integers(0, 41), st.booleans()), max_size=3),
    kind=st.sampled_from(KINDS),
)
@example(length=37, window=0, causal=False, smallest_block=1, paddings=[], kind="product")
@example(length=37, window=5, causal=True, smallest_block=1, paddings=[(36, True)], kind="relative")
@example(length=35, window=5, causal=False, smallest_block=1, paddings=[(0, False), (41, False)], kind="additive")
def test_it_equals_attention_with_the_same_mask(length, window, causal, smallest_block, paddings, kind):
    """Padding stands behind (sources) or in front (histories), or is all there is."""
    torch.manual_seed(length)
    columns = torch.arange(length)
    rows = [columns >= count if in_front else columns < length - count for count, in_front in paddings]
    mask = Mask(torch.stack(rows) if rows else None, causal=causal, window=window)
    how, weights = scoring(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_SMALLEST_BLOCK", smallest_block)
        assert_equal(tensors(max(1, len(rows)), length), mask, how, weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [16, 17, 29, 211])
def test_beyond_three_blocks_of_the_size_that_is_used(window, causal, kind):
    """The third sentence is shorter than the last block is far: whole windows of it are padding."""
    torch.manual_seed(window)
    real = torch.arange(211) < torch.tensor([[211], [199], [3]])
    assert_equal(tensors(3, 211), Mask(real, causal=causal, window=window), *scoring(kind))


@pytest.mark.parametrize("causal", [False, True])
def test_a_reach_over_everything_is_no_restriction(causal):
    inputs, (how, _) = tensors(2, 23), scoring("relative")
    found = attend_locally(*inputs, Mask(causal=causal, window=22), how)
    torch.testing.assert_close(found, everything(inputs, Mask(causal=causal), how))
    narrower = attend_locally(*inputs, Mask(causal=causal, window=21), how)
    assert not torch.allclose(found[:, :, -1], narrower[:, :, -1])
    torch.testing.assert_close(found[:, :, 1:-1], narrower[:, :, 1:-1])  # only the ends are 22 apart


def test_a_reach_of_nothing_gives_every_position_its_own_value():
    query, key, value = tensors(2, 41)
    torch.testing.assert_close(attend_locally(query, key, value, Mask(window=0), Scoring()), value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_alone_gives_no_nan(dtype):
    inputs = [each.detach().to(dtype).requires_grad_() for each in tensors(2, 67)]
    real = torch.zeros(2, 67, dtype=torch.bool)
    result = attend_locally(*inputs, Mask(real, window=3), Scoring(), Dropped(0.5))
    result.sum().backward()
    assert all(each.isfinite().all() for each in (result, *(each.grad for each in inputs)))


def test_a_block_is_as_long_as_the_reach():
    assert [block_size(window) for window in (0, 5, 16, 31)] == [16, 16, 16, 31]
