import math

import pytest
import torch

from transduce.layers import sinusoid_shift, sinusoids


def naive(position, dimension, d_model):
    angle = position / 10000 ** (2 * (dimension // 2) / d_model)
    return math.sin(angle) if dimension % 2 == 0 else math.cos(angle)


@pytest.mark.parametrize("position", [0, 1, 13, 9973])
def test_the_papers_formula(position):
    d_model = 14
    found = sinusoids(torch.tensor([position]), d_model, "interleaved", "open")[0].tolist()
    assert found == pytest.approx([naive(position, i, d_model) for i in range(d_model)], abs=1e-6)


def test_concatenated_is_a_permutation():
    positions = torch.arange(11)
    interleaved = sinusoids(positions, 6, "interleaved", "open")
    concatenated = sinusoids(positions, 6, "concatenated", "open")
    assert concatenated.equal(interleaved[:, [0, 2, 4, 1, 3, 5]])


def test_the_closed_range_ends_with_10000_itself():
    # Three pairs: wavelengths 2 pi, 100 x 2 pi and 10000 x 2 pi.
    found = sinusoids(torch.tensor([37]), 6, "concatenated", "closed")[0].tolist()
    angles = 37, 37 / 100, 37 / 10000
    assert found == pytest.approx([*map(math.sin, angles), *map(math.cos, angles)], abs=1e-6)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("range_", ["open", "closed"])
@pytest.mark.parametrize("k", [1, -5, 97])
def test_a_linear_map_shifts_every_position(layout, range_, k):
    positions = torch.tensor([97, 101, 997])
    before, after = (sinusoids(positions + by, 14, layout, range_).double() for by in (0, k))
    torch.testing.assert_close(before @ sinusoid_shift(k, 14, layout, range_).T, after, atol=1e-6, rtol=0)


def test_shifts_add_up():
    shifts = [sinusoid_shift(k, 10, "interleaved", "open") for k in (3, 4, 7)]
    torch.testing.assert_close(shifts[0] @ shifts[1], shifts[2])
