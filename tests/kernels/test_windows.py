"""Windows of a ragged batch against a loop over its rows, forward and backward."""

import pytest
import torch

from transduce.kernels import Neighbours, RaggedLayout

LENGTHS = torch.tensor([5, 1, 3, 2])
CHANNELS = 7


def by_loop(x, offsets):
    """[x_{t + o}] for every offset, symbol by symbol, with zeros outside of the row."""
    windows, first = [], 0
    for length in LENGTHS.tolist():
        row = x[first : first + length]
        for time in range(length):
            parts = [row[time + o] if 0 <= time + o < length else torch.zeros_like(x[0]) for o in offsets]
            windows.append(torch.cat(parts))
        first += length
    return torch.stack(windows)


@pytest.mark.parametrize("offsets", [(0,), (-1, 0, 1), (-2, -1, 0), (-6, -4, -2, 0), (-17, 0, 17), (3,)])
def test_windows_are_those_of_a_loop(offsets):
    torch.manual_seed(3)
    layout = RaggedLayout.of(LENGTHS, 6, torch.device("cpu"))
    x = torch.randn(11, CHANNELS, dtype=torch.float64, requires_grad=True)
    neighbours = Neighbours.of(layout, offsets)
    found, expected = neighbours.windows(x), by_loop(x, offsets)
    assert torch.equal(found, expected)
    downstream = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(found, x, downstream)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, downstream)[0])
