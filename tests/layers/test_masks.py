import torch

from transduce.layers import causal_mask, padding_mask, recent_mask


def marks(mask):
    return ["".join("x" if cell else "." for cell in row) for row in mask.flatten(0, -2).tolist()]


def test_padding_stands_behind():
    assert marks(padding_mask(torch.tensor([3, 1]), 4)) == ["xxx.", "x..."]


def test_causal_sees_itself_and_the_past():
    assert marks(causal_mask(3, 3, torch.device("cpu"))) == ["x..", "xx.", "xxx"]


def test_causal_with_a_past_before_the_queries():
    assert marks(causal_mask(2, 5, torch.device("cpu"))) == ["xxxx.", "xxxxx"]


def test_histories_end_at_the_right():
    assert marks(recent_mask(torch.tensor([3, 1]), 4)) == [".xxx", "...x"]
