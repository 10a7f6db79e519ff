"""Attention chunk by chunk equals attention with every weight at hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.kernels import Dropped, Mask, Scoring, chunked
from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.scores import attend_plainly

CPU = torch.device("cpu")
HEADS, D_K, D_V = 2, 3, 5


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Seven queries and sqrt(n) keys at a time."""
    monkeypatch.setattr(chunked, "_QUERIES", 7)
    monkeypatch.setattr(chunked, "_KEYS", 1)


def tensors(batch: int, queries: int, keys: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(100 * queries + keys)
    shapes = ((queries, D_K), (keys, D_K), (keys, D_V))
    return [torch.randn(batch, HEADS, *shape, dtype=dtype).requires_grad_() for shape in shapes]


def plainly(inputs: list[torch.Tensor], mask: Mask) -> torch.Tensor:
    query, key, value = inputs
    allowed = mask.matrix(query.shape[2], key.shape[2], CPU)
    return attend_plainly(query, key, value, allowed, None, Scoring())


def gradients(result: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(5)
    return torch.autograd.grad((result * torch.randn_like(result)).sum(), inputs)


# 1, 6, 7, 8 and 20 queries: less than a chunk, a whole one, more, no multiple; keys in chunks of sqrt: 1, 2, 4 and 5.
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [
        *((q, k, False) for q, k in ((1, 1), (6, 29), (7, 29), (8, 5), (20, 20), (20, 29), (29, 20))),
        *((q, k, True) for q, k in ((1, 1), (6, 29), (7, 29), (20, 20), (20, 29))),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_values_and_gradients_equal_plain_attentions(queries, keys, causal, padded):
    # Behind, as a source's padding; and in front, where the first chunks then hold nothing to look at.
    rows = torch.arange(keys) <= keys // 2, torch.arange(keys) >= keys - queries
    mask = Mask(torch.stack(rows) if padded else None, causal=causal)
    inputs = tensors(2, queries, keys)
    found, expected = attend_in_chunks(*inputs, mask), plainly(inputs, mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


@given(queries=st.integers(1, 23), past=st.integers(0, 17), causal=st.booleans(), window=st.none() | st.integers(0, 25))
def test_every_mask_of_queries_that_end_where_the_keys_end(queries, past, causal, window):
    inputs, mask = tensors(1, queries, queries + past), Mask(causal=causal, window=window)
    found, expected = attend_in_chunks(*inputs, mask), plainly(inputs, mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
def test_other_number_formats(dtype, tolerance):
    """Of bfloat16, whose last digit is 2^-8, a few digits are lost on the way; the result's format is the values'."""
    exact = tensors(2, 20, 29)
    inputs = [each.detach().to(dtype).requires_grad_() for each in exact]
    exact = [each.detach().double().requires_grad_() for each in inputs]
    found, expected = attend_in_chunks(*inputs, Mask()), plainly(exact, Mask())
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    expected.sum().backward()
    found.sum().backward()
    for mine, other in zip(inputs, exact, strict=True):
        assert mine.grad.dtype == dtype
        torch.testing.assert_close(mine.grad.double(), other.grad, rtol=tolerance, atol=4 * tolerance)


def test_autocast_multiplies_in_its_format():
    inputs = tensors(1, 20, 29, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = attend_in_chunks(*inputs, Mask())
    assert result.dtype == torch.bfloat16
    narrow = [each.detach().bfloat16().requires_grad_() for each in inputs]
    expected = attend_in_chunks(*narrow, Mask())
    assert result.equal(expected)
    found = torch.autograd.grad(result.sum(), inputs)
    assert [gradient.dtype for gradient in found] == [torch.float32] * 3
    wide = [gradient.float() for gradient in torch.autograd.grad(expected.sum(), narrow)]
    torch.testing.assert_close(list(found), wide)


@pytest.mark.parametrize("dropped", [0.0, 0.4])
def test_the_gradient_is_that_of_what_was_computed(dropped):
    """By finite differences in float64: the masks that backward draws again are those of forward."""

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(11)
        return attend_in_chunks(query, key, value, Mask(causal=True), Dropped(dropped))

    assert torch.autograd.gradcheck(attend, tensors(1, 9, 11), fast_mode=True)


def test_far_apart_scores_neither_overflow_nor_vanish():
    """Scores of 0 to 28,000: exponentials under the largest so far, in whatever order the keys come."""
    query = torch.full((1, 1, 3, 1), 1000.0, requires_grad=True)
    key = torch.arange(29.0).view(1, 1, 29, 1).requires_grad_()
    for order in (torch.arange(29), torch.arange(28, -1, -1)):
        result = attend_in_chunks(query, key[:, :, order], key[:, :, order], Mask())
        torch.testing.assert_close(result, torch.full((1, 1, 3, 1), 28.0))
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), (query, key)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_alone_gives_no_nan(dtype):
    inputs = [each.detach().to(dtype).requires_grad_() for each in tensors(2, 20, 29)]
    result = attend_in_chunks(*inputs, Mask(torch.zeros(2, 29, dtype=torch.bool)), Dropped(0.5))
    result.sum().backward()
    assert all(each.isfinite().all() for each in (result, *(each.grad for each in inputs)))


def test_chunks_of_keys_are_as_long_as_the_square_root_and_none_is_all_future(monkeypatch):
    widths = []
    original = chunked._Chunks.scores

    def scores(self, queries, keys):
        widths.append((queries.stop - queries.start, keys.stop - keys.start))
        return original(self, queries, keys)

    monkeypatch.setattr(chunked._Chunks, "scores", scores)
    attend_in_chunks(*tensors(1, 14, 30), Mask())
    assert widths == [(7, math.isqrt(30))] * 6 * 2
    widths.clear()
    # The first seven of 14 queries end in column 7: two chunks of three keys and one key more.
    attend_in_chunks(*tensors(1, 14, 14), Mask(causal=True))
    assert widths == [(7, 3)] * 3 + [(7, 3)] * 4 + [(7, 2)]
