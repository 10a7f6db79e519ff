"""Multi-head attention by the paper's formulas, one head, query and key at a time."""

import math

import pytest
import torch

from transduce.config import preset
from transduce.kernels import Mask, RaggedLayout
from transduce.layers import MultiHeadAttention

# A model of width 14, three heads whose keys are 5 and whose values are 7 wide; relative distances -2 to 2.
D_MODEL, HEADS, D_K, D_V, REACH = 14, 3, 5, 7, 2
SIZES = {"d_model": D_MODEL, "heads": HEADS, "d_k": D_K, "d_v": D_V}
RELATIVE = {"positions": "relative", "max_relative_distance": REACH}
COMPATIBILITIES = ["scaled_dot_product", "dot_product", "multiplicative", "additive"]


def make(compatibility="scaled_dot_product", *, relative=False, **changes):
    torch.manual_seed(3)
    config = preset("base", {**SIZES, "compatibility": compatibility, **(RELATIVE if relative else {}), **changes})
    layer = MultiHeadAttention(config, relative=relative).double().eval()
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):  # they start with 0
            torch.nn.init.normal_(parameter)
    return layer


def layout(*lengths):
    return RaggedLayout.of(torch.tensor(lengths), max(lengths), torch.device("cpu"))


def score(layer, head, q, k):
    """Section 3.2.1, and the functions that others compare queries with keys by."""
    match layer.compatibility:
        case "scaled_dot_product":
            return (q @ k) / math.sqrt(D_K)
        case "dot_product":
            return q @ k
        case "multiplicative":
            return q @ layer.bilinear[head] @ k
        case "additive":
            return layer.additive[head] @ torch.tanh(q + k)


def project(linear, head, width, x):
    """X W_i, W_i being the transpose of the head's rows of the matrix."""
    rows = slice(head * width, (head + 1) * width)
    return linear.weight[rows] @ x + (0 if linear.bias is None else linear.bias[rows])


def by_formula(layer, x, attended, allowed):
    """Concat(head_1, ..., head_h) W^O of one sentence."""
    outputs = []
    for i, position in enumerate(x):
        heads = []
        for head in range(HEADS):
            q = project(layer.query, head, D_K, position)
            scores, values = [], []
            for j, other in enumerate(attended):
                if not allowed[i][j]:
                    continue
                k, v = project(layer.key, head, D_K, other), project(layer.value, head, D_V, other)
                if layer.relative is not None:
                    clipped = max(-REACH, min(REACH, j - i)) + REACH
                    k, v = k + layer.relative.keys[clipped], v + layer.relative.values[clipped]
                scores.append(score(layer, head, q, k).exp())
                values.append(v)
            heads.append(sum(s * v for s, v in zip(scores, values, strict=True)) / sum(scores))
        joined = torch.cat(heads)
        outputs.append(layer.output.weight @ joined + (0 if layer.output.bias is None else layer.output.bias))
    return torch.stack(outputs)


def assert_equal(layer, found, expected):
    torch.testing.assert_close(found, expected)
    received = torch.randn_like(found)
    weights = list(layer.parameters())
    gradients = [torch.autograd.grad((each * received).sum(), weights, retain_graph=True) for each in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("compatibility", COMPATIBILITIES)
def test_attention_over_a_source_equals_the_formula(compatibility, bias):
    """Both over sentences laid end to end and over a padded memory that is kept."""
    layer = make(compatibility, attention_bias=bias)
    x, source = torch.randn(2, 3, D_MODEL).double(), torch.randn(2, 4, D_MODEL).double()
    rows = [[True] * 4] * 3, [[True, True, False, False]] * 3
    expected = torch.stack([by_formula(layer, x[b], source[b], rows[b]) for b in range(2)])
    keys = layout(4, 2)
    assert_equal(layer, layer.look(x, layer.key_values(source), Mask(keys.real)), expected)
    packed = layer(x.flatten(0, 1), keys.flatten(source), layout(3, 3), keys)
    assert_equal(layer, packed, expected.flatten(0, 1))


@pytest.mark.parametrize("compatibility", COMPATIBILITIES)
def test_relative_self_attention_equals_the_formula(compatibility):
    layer = make(compatibility, relative=True)
    x = torch.randn(6 + 4, D_MODEL).double()
    past = [[j <= i for j in range(6)] for i in range(6)]
    lengths = layout(6, 4)
    expected = torch.cat([by_formula(layer, x[:6], x[:6], past), by_formula(layer, x[6:], x[6:], past)])
    assert_equal(layer, layer(x, None, lengths, lengths, causal=True), expected)
    kept = layer.look(x[None, :6], layer.key_values(x[None, :6]), Mask(causal=True))
    assert_equal(layer, kept, expected[None, :6])


@pytest.mark.parametrize("compatibility", COMPATIBILITIES)
def test_weights_for_people_are_those_of_the_formula(compatibility):
    layer = make(compatibility)
    x, source = torch.randn(2, 3, D_MODEL).double(), torch.randn(2, 4, D_MODEL).double()
    found = layer.weights(x, layer.key_values(source), Mask(torch.tensor([[True] * 4, [True] * 3 + [False]])))
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(HEADS), torch.arange(3)).tolist():
        q = project(layer.query, h, D_K, x[b, i])
        scores = [score(layer, h, q, project(layer.key, h, D_K, source[b, j])).exp() for j in range(4 - b)]
        expected = torch.stack(scores + [torch.zeros_like(scores[0])] * b) / sum(scores)
        torch.testing.assert_close(found[b, h, i], expected)


@pytest.mark.parametrize(
    ("compatibility", "more"),
    [("scaled_dot_product", 0), ("dot_product", 0), ("multiplicative", HEADS * D_K * D_K), ("additive", HEADS * D_K)],
)
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_parameters_by_hand(compatibility, more, relative, bias):
    layer = make(compatibility, relative=relative, attention_bias=bias)
    # Two maps to keys' widths, one to values', one back; a bias for each of their outputs; a vector for each distance.
    expected = HEADS * D_MODEL * (2 * D_K + 2 * D_V) + more
    expected += HEADS * (2 * D_K + D_V) + D_MODEL if bias else 0
    expected += (2 * REACH + 1) * (D_K + D_V) if relative else 0
    assert sum(parameter.numel() for parameter in layer.parameters()) == expected


def test_weights_are_dropped_in_training_only():
    layer = make(attention_dropout=0.5)
    x, lengths = torch.randn(6, D_MODEL).double(), layout(3, 3)
    padded = x.view(2, 3, D_MODEL)
    attended = layer.key_values(padded)

    def forward():
        return torch.cat([layer(x, None, lengths, lengths), layer.look(padded, attended, Mask()).flatten(0, 1)])

    assert forward().equal(forward())
    layer.train()
    changed = (forward() != forward()).any(dim=1)
    assert changed[:6].any()
    assert changed[6:].any()
    x = padded
    assert layer.weights(x, attended, Mask()).equal(layer.weights(x, attended, Mask()))  # what people look at is whole


def test_the_output_bias_may_be_left_to_others(monkeypatch):
    layer, lengths = make(attention_bias=True), layout(4, 2)
    x = torch.randn(6, D_MODEL).double()
    whole = layer(x, None, lengths, lengths, defer_bias=True)  # where nobody adds it later
    monkeypatch.setattr("transduce.layers.linear.adds_output_bias", lambda _: True)
    parted = layer(x, None, lengths, lengths, defer_bias=True)
    assert parted.bias is layer.output.bias
    torch.testing.assert_close(parted.rows + parted.bias, whole)
    torch.testing.assert_close(layer(x, None, lengths, lengths), whole)
