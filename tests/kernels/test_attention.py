import math

import pytest
import torch
from torch.nn import functional as F

from transduce.kernels import Mask, attend, attention_weights


def test_by_hand():
    query = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[math.log(3), 0, 0, 0], [0.0, 1, 0, 0], [9.0, 9, 9, 9]]]])
    value = torch.tensor([[[[4.0], [8.0], [1000.0]]]])
    mask = Mask(torch.tensor([[True, True, False]]))
    # q k = log 3 and 0: weights 3/4 and 1/4, and nothing for the key that is not allowed.
    torch.testing.assert_close(attention_weights(query, key, mask), torch.tensor([[[[0.75, 0.25, 0.0]]]]))
    torch.testing.assert_close(attend(query, key, value, mask), torch.tensor([[[[5.0]]]]))


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
