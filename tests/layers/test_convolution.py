"""Convolutions, gates and weight normalization against loops in float64 and PyTorch's own."""

import math

import pytest
import torch
from torch import nn

from transduce.kernels import RaggedLayout
from transduce.layers.convolution import (
    Convolution,
    NormalizedLinear,
    causal,
    centred,
    draw_map,
    fold_normalization,
    gate,
    look_around,
    scale_gradient,
)
from transduce.layers.multi_step_attention import Attended, MultiStepAttention, look_up

INPUTS, OUTPUTS = 3, 5
LENGTHS = torch.tensor([7, 4])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def test_offsets():
    assert causal(3) == (-2, -1, 0)
    assert causal(3, 4) == (-8, -4, 0)
    assert centred(5) == (-2, -1, 0, 1, 2)
    assert centred(3, 2) == (-2, 0, 2)
    assert causal(1) == centred(1) == (0,)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("offsets", [centred(3), centred(5, 2), causal(3), causal(2, 3)])
def test_a_convolution_is_the_sum_over_its_kernel(offsets, normalized):
    map_ = draw_map(len(offsets) * INPUTS, OUTPUTS, std=0.7, normalized=normalized).double()
    nn.init.normal_(map_.bias)
    convolution = Convolution(map_, INPUTS, offsets)
    layout = RaggedLayout.of(LENGTHS, 8, torch.device("cpu"))
    x = torch.randn(11, INPUTS, dtype=torch.float64)
    found = convolution(x, look_around([convolution], layout)[offsets])
    weight = map_.weight() if normalized else map_.weight
    for row, (first, length) in enumerate(((0, 7), (7, 4))):
        assert length == LENGTHS[row]
        for time in range(length):
            for output in range(OUTPUTS):
                expected = map_.bias[output].item()
                for number, offset in enumerate(offsets):
                    for channel in range(INPUTS):
                        if 0 <= time + offset < length:
                            read = x[first + time + offset, channel]
                            expected += (weight[output, number * INPUTS + channel] * read).item()
                assert found[first + time, output].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("offsets", [causal(3), causal(3, 2), causal(2, 5), causal(1)])
def test_a_step_reads_what_the_whole_reads(offsets):
    """And keeps as many columns as the kernel reaches back, whatever the length."""
    convolution = Convolution(draw_map(len(offsets) * INPUTS, OUTPUTS, std=1.0, normalized=True), INPUTS, offsets)
    layout = RaggedLayout.of(torch.tensor([13, 13]), 13, torch.device("cpu"))
    x = torch.randn(2, 13, INPUTS)
    with torch.no_grad():
        whole = convolution(x.flatten(0, 1), look_around([convolution], layout)[offsets]).view(2, 13, OUTPUTS)
        columns = convolution.empty(2, x)
        assert columns.shape == (-offsets[0], 2, INPUTS)
        for time in range(13):
            torch.testing.assert_close(convolution.step(x[:, time], columns, time), whole[:, time])


def test_a_gate():
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = [[row[i] / (1 + math.exp(-row[i + 3])) for i in range(3)] for row in x.tolist()]
    torch.testing.assert_close(gate(x), torch.tensor(expected, dtype=torch.float64))


def test_weight_normalization_is_pytorchs():
    ours = draw_map(INPUTS, OUTPUTS, std=0.4, normalized=True).double()
    assert isinstance(ours, NormalizedLinear)
    nn.init.normal_(ours.length)
    nn.init.normal_(ours.bias)
    theirs = nn.utils.parametrizations.weight_norm(nn.Linear(INPUTS, OUTPUTS).double())
    with torch.no_grad():
        theirs.parametrizations.weight.original0.copy_(ours.length.unsqueeze(1))
        theirs.parametrizations.weight.original1.copy_(ours.direction)
        theirs.bias.copy_(ours.bias)
    x = torch.randn(11, INPUTS, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
    for model in (ours, theirs):
        model(x).square().sum().backward()
    torch.testing.assert_close(ours.length.grad.unsqueeze(1), theirs.parametrizations.weight.original0.grad)
    torch.testing.assert_close(ours.direction.grad, theirs.parametrizations.weight.original1.grad)
    # Folded, it is a plain map of the same numbers.
    parent = nn.Sequential(ours, nn.ReLU())
    expected = parent(x)
    fold_normalization(parent)
    assert type(parent[0]).__name__ == "Linear"
    torch.testing.assert_close(parent(x), expected)


def test_weight_normalization_begins_as_the_map_that_was_drawn():
    plain = draw_map(INPUTS, OUTPUTS, std=0.4, normalized=False)
    torch.manual_seed(7)
    torch.empty(OUTPUTS, INPUTS).uniform_()  # what nn.Linear draws first, and is written over
    torch.empty(OUTPUTS).uniform_()
    split = draw_map(INPUTS, OUTPUTS, std=0.4, normalized=True)
    torch.testing.assert_close(split.weight(), plain.weight)


def test_attention_is_a_loop_over_queries_and_keys():
    embedding, channels, sources = 5, 3, [4, 2]
    attention = MultiStepAttention(channels, embedding, normalized=True).double()
    hidden = torch.randn(2, 3, channels, dtype=torch.float64)
    embedded = torch.randn(2, 3, embedding, dtype=torch.float64)
    keys, values = torch.randn(2, 2, 4, embedding, dtype=torch.float64)
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    found, weights = look_up(attention.ask(hidden, embedded), Attended(keys, values, real))
    for b, m in enumerate(sources):
        for i in range(3):
            asked = hidden[b, i] @ attention.query.weight().T + attention.query.bias
            d = [(asked[c] + embedded[b, i, c]).item() * math.sqrt(0.5) for c in range(embedding)]
            scores = [sum(d[c] * keys[b, j, c].item() for c in range(embedding)) for j in range(m)]
            total = sum(map(math.exp, scores))
            a = [math.exp(score) / total for score in scores] + [0.0] * (4 - m)
            assert weights[b, i].tolist() == pytest.approx(a)
            context = [sum(a[j] * values[b, j, c].item() for j in range(m)) for c in range(embedding)]
            assert found[b, i].tolist() == pytest.approx([m * math.sqrt(1 / m) * each for each in context])
    out = attention.join(hidden, found)
    expected = (found @ attention.output.weight().T + attention.output.bias + hidden) / math.sqrt(2)
    torch.testing.assert_close(out, expected)


def test_a_scaled_gradient():
    x = torch.randn(3, requires_grad=True)
    y = scale_gradient(x, 0.25)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 0.25))
