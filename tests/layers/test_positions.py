import math

import pytest
import torch

from transduce.config import preset
from transduce.layers import SinusoidalPositions, sinusoids


def naive(position, dimension, d_model):
    angle = position / 10000 ** (2 * (dimension // 2) / d_model)
    return math.sin(angle) if dimension % 2 == 0 else math.cos(angle)


@pytest.mark.parametrize("position", [0, 1, 13, 9973])
def test_the_papers_formula(position):
    d_model = 14
    found = sinusoids(torch.tensor([position]), d_model, "interleaved")[0].tolist()
    assert found == pytest.approx([naive(position, i, d_model) for i in range(d_model)], abs=1e-6)


def test_concatenated_is_a_permutation():
    positions = torch.arange(11)
    interleaved = sinusoids(positions, 6, "interleaved")
    concatenated = sinusoids(positions, 6, "concatenated")
    assert concatenated.equal(interleaved[:, [0, 2, 4, 1, 3, 5]])


def test_the_table_grows_past_what_it_was_built_for():
    config = preset("tiny")
    grown, built = SinusoidalPositions(config, 3), SinusoidalPositions(config, 101)
    positions = torch.arange(97).unsqueeze(0)
    assert grown(positions, 97).equal(built(positions, 97))


def test_the_table_is_never_saved():
    assert not SinusoidalPositions(preset("tiny")).state_dict()
