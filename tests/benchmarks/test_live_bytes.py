import torch

from benchmarks.live_bytes import LiveBytes

WIDE, NARROW = 4 * 1009, 4 * 7  # bytes


def test_what_is_dropped_is_no_longer_counted():
    before = torch.ones(1009)
    with LiveBytes() as count:
        first = before + 1
        second = first * 2
        assert count.live == 2 * WIDE
        del first
        assert count.live == WIDE
        second.view(1, 1009).mul_(3)  # a view and a change in place make nothing
        before.add_(1)
        assert before[:7].sum() == 14
        third = torch.ones(7)
    assert (count.live, count.peak) == (WIDE + NARROW, 2 * WIDE)
    assert second.sum() + third.sum() == 12 * 1009 + 7


def test_what_only_the_graph_holds_is_counted_until_backward():
    x = torch.ones(1009, requires_grad=True)
    with LiveBytes() as count:
        total = x.exp().exp().sum()  # each exponential is kept for its gradient
        assert count.live == 2 * WIDE + 4
        total.backward()
        assert count.live == WIDE + 4  # the gradient and the sum
    # At the most: both exponentials, what the second one's gradient is multiplied to, and two numbers, the sum and its
    # gradient, which reaches all 1,009 by a view.
    assert count.peak == 3 * WIDE + 8
