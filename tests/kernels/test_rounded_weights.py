"""Weights that are cast all at once, beside each cast where it is used."""

import pytest
import torch

from transduce.kernels.rounded_weights import RoundedWeights, join_rounded

LOW = torch.bfloat16


@pytest.fixture
def weights():
    torch.manual_seed(1)
    return [torch.randn(rows, 3) for rows in (2, 4, 1)]


def joined(tensors):
    return torch.cat(list(tensors)).to(LOW)


def test_without_any_each_is_cast_where_it_is_used(weights):
    assert torch.equal(join_rounded([weights[0], None, weights[2]], LOW), joined([weights[0], weights[2]]))


def test_what_is_joined_is_kept_and_follows_the_weights(weights):
    rounded = RoundedWeights(weights, LOW)
    with rounded.used():
        first = join_rounded(weights[:2], LOW)
        assert join_rounded(weights[:2], LOW) is first
    weights[1].add_(1)
    with rounded.used():
        again = join_rounded(weights[:2], LOW)
        assert again is first
        assert torch.equal(again, joined(weights[:2]))


def test_others_are_cast_for_themselves(weights):
    made, rounded = torch.randn(2, 3), RoundedWeights(weights, LOW)
    with rounded.used():
        for tensors in ([made], [weights[0], made]):
            assert torch.equal(join_rounded(tensors, LOW), joined(tensors))
            assert join_rounded(tensors, LOW) is not join_rounded(tensors, LOW)
        assert join_rounded(weights[:1], torch.float16).dtype == torch.float16


def test_nobody_reads_them_behind_their_use(weights):
    rounded = RoundedWeights(weights, LOW)
    with rounded.used():
        first = join_rounded(weights[:1], LOW)
    weights[0].mul_(2)
    assert torch.equal(join_rounded(weights[:1], LOW), joined(weights[:1]))
    assert not torch.equal(first, joined(weights[:1]))
