import pytest
import torch

from transduce.config import preset
from transduce.layers import FeedForward, FeedForwardShape


def make(**changes):
    return FeedForward(
        FeedForwardShape.of(preset("base", {"d_model": 14, "d_ff": 23, "heads": 2, "dropout": 0.0, **changes}))
    )


def test_it_is_two_maps_around_a_relu():
    layer = make()
    torch.nn.init.normal_(layer.inner.bias)
    torch.nn.init.normal_(layer.outer.bias)
    x = torch.randn(2, 3, 14)
    hidden = (x @ layer.inner.weight.T + layer.inner.bias).clamp(min=0)
    torch.testing.assert_close(layer(x), hidden @ layer.outer.weight.T + layer.outer.bias)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 2 * 14 * 23 + 23 + 14


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda x: x.clamp(min=0)),
        ("gelu", lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
        ("gelu_tanh", lambda x: x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2),
        ("silu", lambda x: x / (1 + torch.exp(-x))),
    ],
)
def test_activations_gates_and_biases_are_their_formulas(activation, formula, bias, gated):
    kind = "gated" if gated else "mlp"
    layer = make(activation=activation, feed_forward=kind, feed_forward_bias=bias)
    parameters = dict(layer.named_parameters())
    assert parameters.keys() == {
        f"{name}.{part}" for name in ("inner", "outer", *["gate"] * gated) for part in ("weight", *["bias"] * bias)
    }
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter)

    def linear(x, name):
        return x @ parameters[f"{name}.weight"].T + (parameters[f"{name}.bias"] if bias else 0)

    x = torch.randn(2, 3, 14)
    hidden = formula(linear(x, "gate")) * linear(x, "inner") if gated else formula(linear(x, "inner"))
    torch.testing.assert_close(layer(x), linear(hidden, "outer"), rtol=1e-4, atol=1e-4)


def test_dropout_falls_behind_the_relu():
    """With 23 ones inside and an outer map to their sum, each output counts what stayed, in twos."""
    layer = make(activation_dropout=0.5).train()
    for weight in layer.parameters():
        torch.nn.init.zeros_(weight)
    torch.nn.init.ones_(layer.inner.bias)
    torch.nn.init.ones_(layer.outer.weight)
    counts = layer(torch.zeros(997, 14))[:, 0]
    assert set(counts.tolist()) <= {2.0 * n for n in range(24)}
    # Five standard deviations of the mean of 997 sums of 23: 4 x 23 x 1/4 is the variance of one.
    assert counts.mean().item() == pytest.approx(23, abs=5 * (23 / 997) ** 0.5)
    assert layer.eval()(torch.zeros(1, 14)).unique().tolist() == [23.0]


def test_the_output_bias_may_be_left_to_others(monkeypatch):
    monkeypatch.setattr("transduce.layers.linear.adds_output_bias", lambda _: True)
    layer = make()
    torch.nn.init.normal_(layer.outer.bias)
    x = torch.randn(5, 14)
    parted = layer(x, defer_bias=True)
    assert parted.bias is layer.outer.bias
    torch.testing.assert_close(parted.rows + parted.bias, layer(x))
    assert isinstance(make(feed_forward_bias=False)(x, defer_bias=True), torch.Tensor)
