"""Attention over parameters (the paper's supplementary section)."""

import math

import pytest
import torch

from transduce.config import PRESETS, preset
from transduce.layers import FeedForward, ParameterAttention, feed_forward
from transduce.models import build

D_MODEL, HEADS, PAIRS, D_PK, D_PV = 14, 3, 11, 5, 7
SIZES = {
    "d_model": D_MODEL,
    "heads": 2,
    "feed_forward": "parameter_attention",
    "parameter_heads": HEADS,
    "parameter_keys": PAIRS,
    "parameter_d_k": D_PK,
    "parameter_d_v": D_PV,
}


def make(**changes):
    torch.manual_seed(3)
    layer = feed_forward(preset("base", {**SIZES, **changes}))
    assert isinstance(layer, ParameterAttention)
    return layer


def by_formula(layer, x):
    """Of one position: softmax_p(q_h sqrt(d_model) k_hp / sqrt(d_pk)) sqrt(d_model) v_hp, joined and mapped back."""
    heads = []
    for h in range(HEADS):
        q = layer.query.weight[h * D_PK : (h + 1) * D_PK] @ x
        scores = [(q @ (math.sqrt(D_MODEL) * layer.keys[h, p]) / math.sqrt(D_PK)).exp() for p in range(PAIRS)]
        values = [math.sqrt(D_MODEL) * layer.values[h, p] for p in range(PAIRS)]
        heads.append(sum(s * v for s, v in zip(scores, values, strict=True)) / sum(scores))
    return layer.output.weight @ torch.cat(heads)


def test_it_equals_the_formula_at_every_position():
    layer = make().double().eval()
    x = torch.randn(2, 5, D_MODEL).double()
    found, expected = layer(x), torch.stack([by_formula(layer, position) for position in x.view(10, -1)]).view_as(x)
    torch.testing.assert_close(found, expected)
    received = torch.randn_like(found)
    gradients = [torch.autograd.grad((each * received).sum(), list(layer.parameters())) for each in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_its_shapes():
    assert {name: tuple(parameter.shape) for name, parameter in make().named_parameters()} == {
        "query.weight": (HEADS * D_PK, D_MODEL),
        "keys": (HEADS, PAIRS, D_PK),
        "values": (HEADS, PAIRS, D_PV),
        "output.weight": (D_MODEL, HEADS * D_PV),
    }
    biases = {name for name, _ in make(attention_bias=True).named_parameters() if name.endswith("bias")}
    assert biases == {"query.bias", "output.bias"}


def test_pairs_start_as_activations_of_unit_variance():
    """A pair's N(0, 1 / d_model) times sqrt(d_model); five standard deviations of a variance of 3 x 997 x 12 values."""
    layer = make(parameter_keys=997)
    for pairs in (layer.keys, layer.values):
        scaled = math.sqrt(D_MODEL) * pairs.detach()
        assert scaled.var().item() == pytest.approx(1, abs=5 * math.sqrt(2 / scaled.numel()))


def test_its_weights_are_dropped_as_all_attentions_are():
    layer = make(attention_dropout=0.4)
    x = torch.randn(1, 3, D_MODEL)
    assert not layer.train()(x).equal(layer(x))
    assert layer.eval()(x).equal(layer(x))
    whole = make().train()
    assert whole(x).equal(whole(x))


@pytest.mark.parametrize("name", ["aop1", "aop2"])
def test_the_published_sub_layers_have_as_many_parameters_as_the_maps_that_they_replace(name):
    """2,097,152 (supplementary section) are 2 x 512 x 2,048; but the two maps' biases, 2,048 + 512, are gone."""
    with torch.device("meta"):
        model, base = build(PRESETS[name]), build(PRESETS["base"])
    layers = [layer.feed_forward for layer in [*model.encoder, *model.decoder]]
    assert [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers] == [2_097_152] * 12
    assert all(isinstance(layer.feed_forward, FeedForward) for layer in [*base.encoder, *base.decoder])
    counts = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, base)]
    assert counts[1] - counts[0] == 12 * (2048 + 512)
