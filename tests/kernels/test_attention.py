import math

import pytest
import torch
from torch.nn import functional as F

from transduce.kernels import attention_weights, scaled_dot_product_attention


def test_by_hand():
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[math.log(3), 0, 0, 0], [0.0, 1, 0, 0], [9.0, 9, 9, 9]]]])
    value = torch.tensor([[[[4.0], [8.0], [1000.0]]]])
    allowed = torch.tensor([[[True, True, False]]])
    # q k / sqrt(4) = log 3 and 0: weights 3/4 and 1/4, and nothing for the key that is not allowed.
    torch.testing.assert_close(attention_weights(query, key, allowed), torch.tensor([[[[0.75, 0.25, 0.0]]]]))
    torch.testing.assert_close(scaled_dot_product_attention(query, key, value, allowed), torch.tensor([[[[5.0]]]]))


@pytest.mark.parametrize("masked", [False, True])
def test_agrees_with_torch(masked):
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 13)
    allowed = torch.rand(2, 5, 11) < 0.5 if masked else None
    if allowed is not None:
        allowed[:, :, 0] = True
    expected = F.scaled_dot_product_attention(query, key, value, None if allowed is None else allowed.unsqueeze(1))
    torch.testing.assert_close(scaled_dot_product_attention(query, key, value, allowed), expected)
