import pytest
import torch

from transduce.config import preset
from transduce.layers import Residual, Stream
from transduce.layers.linear import PendingBias


def layer_norm(x):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()


def make(**changes):
    return Residual(preset("tiny", {"norm": "pre", "dropout": 0, **changes})).train()


def test_post_norm_is_the_published_formula():
    residual = make(norm="post")
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    stream, query = residual.prepare(Stream(x))
    assert query is x
    torch.testing.assert_close(residual.add(stream, output).settle(), layer_norm(x + output))


def test_pre_norm_leaves_the_sum_alone():
    residual = make()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    stream, query = residual.prepare(Stream(x))
    torch.testing.assert_close(query, layer_norm(x))
    torch.testing.assert_close(residual.add(stream, output).settle(), x + output)


def test_whoever_normalizes_adds_up_what_is_pending():
    first, second = make(), make()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    stream, query = second.prepare(first.add(Stream(x), output))
    torch.testing.assert_close(query, layer_norm(x + output))
    torch.testing.assert_close(stream.settle(), x + output)


@pytest.mark.parametrize("changes", [{}, {"norm": "post"}, {"residual": False}])
def test_a_bias_that_comes_later_is_added_all_the_same(changes):
    residual = make(**changes, dropout=0.3)
    x, rows, bias = torch.randn(3, 128), torch.randn(3, 128), torch.randn(128)
    ends = []
    for output in (rows + bias, PendingBias(rows, bias)):
        torch.manual_seed(7)
        stream, query = residual.prepare(residual.add(Stream(x), output))
        ends += [stream.settle(), query]
    torch.testing.assert_close(ends[:2], ends[2:])


def test_autocast_narrows_the_query_and_leaves_the_sum_its_digits():
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stream, query = make().prepare(make().add(Stream(x), output.bfloat16()))
    assert (stream.settle().dtype, query.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(query, layer_norm(x + output).bfloat16(), rtol=0.02, atol=0.02)


def test_dropout_falls_on_the_sublayer_and_not_on_the_residual():
    residual = make(dropout=0.5)
    x, output = torch.full((7, 128), 3.0), torch.ones(7, 128)
    assert residual.add(Stream(x), output).settle().unique().tolist() == [3.0, 5.0]
    assert residual.eval().add(Stream(x), output).settle().unique().tolist() == [4.0]


def test_a_sum_keeps_the_dropout_it_was_made_with():
    x, output = torch.full((7, 128), 3.0), torch.ones(7, 128)
    pending = make(dropout=0.5).add(Stream(x), output)
    assert make(dropout=0.0).prepare(pending)[0].settle().unique().tolist() == [3.0, 5.0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_a_residual_only_the_sublayer_goes_on(norm):
    residual = make(norm=norm, dropout=0.5, residual=False).eval()
    x, output = torch.randn(3, 128), torch.randn(3, 128)
    torch.testing.assert_close(residual.prepare(Stream(x))[1], x if norm == "post" else layer_norm(x))
    expected = layer_norm(output) if norm == "post" else output
    torch.testing.assert_close(residual.add(Stream(x), output).settle(), expected)
    dropped = residual.train().add(Stream(x), torch.ones(3, 128)).settle() if norm == "pre" else None
    assert dropped is None or dropped.unique().tolist() == [0.0, 2.0]
