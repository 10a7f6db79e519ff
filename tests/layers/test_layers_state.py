import torch

from transduce.layers import recent_mask


def marks(mask):
    return ["".join("x" if cell else "." for cell in row) for row in mask.tolist()]


def test_histories_end_at_the_right():
    assert marks(recent_mask(torch.tensor([3, 1]), 4)) == [".xxx", "...x"]
