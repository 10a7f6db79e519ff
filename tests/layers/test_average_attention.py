"""Average attention against a loop over positions."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from transduce.config import TransformerConfig
from transduce.kernels import RaggedLayout
from transduce.layers import AverageAttention, RunningSum, average_weights
from transduce.models import AttentionRequest, Tokens, build, heads_of

D_MODEL, D_FF = 6, 11
SIZES = {"d_model": D_MODEL, "d_ff": D_FF, "heads": 3, "decoder_self_attention": "average"}
LENGTHS = torch.tensor([3, 1, 5])
PARTS = {"both": {}, "no network": {"average_feed_forward": False}, "no gate": {"average_gate": False}}
PARTS["neither"] = PARTS["no network"] | PARTS["no gate"]


def make(changes):
    torch.manual_seed(3)
    layer = AverageAttention(TransformerConfig.model_validate(SIZES | changes))
    for name, weight in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight)
    return layer.double().eval()


def layout():
    return RaggedLayout.of(LENGTHS, 5, torch.device("cpu"))


def by_formula(layer, row):
    """One position after the other."""
    found = []
    for j in range(1, len(row) + 1):
        gathered = sum(row[:j]) / j
        if (network := layer.feed_forward) is not None:
            hidden = (network.inner.weight @ gathered + network.inner.bias).clamp(min=0)
            gathered = network.outer.weight @ hidden + network.outer.bias
        if layer.gate is not None:
            gates = 1 / (1 + (-(layer.gate.weight @ torch.cat([row[j - 1], gathered]))).exp())
            gathered = gates[:D_MODEL] * row[j - 1] + gates[D_MODEL:] * gathered
        found.append(gathered)
    return torch.stack(found)


@pytest.mark.parametrize("part", PARTS)
def test_it_equals_the_formula_for_every_position(part):
    layer, x = make(PARTS[part]), torch.randn(9, D_MODEL, dtype=torch.float64, requires_grad=True)
    expected = torch.cat([by_formula(layer, row) for row in x.split(LENGTHS.tolist())])
    found = layer(x, layout())
    torch.testing.assert_close(found, expected)
    received = torch.randn_like(found)
    weights = [x, *layer.parameters()]
    torch.testing.assert_close(*(torch.autograd.grad((each * received).sum(), weights) for each in (found, expected)))
    assert sum(weight.numel() for weight in layer.parameters()) == (
        (layer.feed_forward is not None) * (2 * D_MODEL * D_FF + D_FF + D_MODEL)
        + (layer.gate is not None) * 4 * D_MODEL**2
    )


@pytest.mark.parametrize("part", PARTS)
def test_steps_equal_all_at_once(part):
    layer, x = make(PARTS[part]), torch.randn(2, 7, D_MODEL, dtype=torch.float64)
    whole = layer(x.flatten(0, 1), RaggedLayout.of(torch.tensor([7, 7]), 7, torch.device("cpu")))
    past = RunningSum.empty(x[:, 0])
    for position in range(7):
        y, past = layer.step(x[:, position : position + 1], past)
        torch.testing.assert_close(y[:, 0], whole.view_as(x)[:, position])


def test_no_position_sees_what_follows_it_and_all_of_the_past_weighs_the_same():
    layer, x = make(PARTS["neither"]), torch.randn(9, D_MODEL, dtype=torch.float64, requires_grad=True)
    y = layer(x, layout())
    for position, row in ((0, [1.0, 0, 0]), (1, [1 / 2, 1 / 2, 0]), (2, [1 / 3, 1 / 3, 1 / 3])):
        (gradient,) = torch.autograd.grad(y[position, 2], x, retain_graph=True)
        torch.testing.assert_close(gradient[:3, 2], torch.tensor(row, dtype=torch.float64))
        assert not gradient[3:].any()
    weights = average_weights(layout().real, 2)[0, 1, :3, :3]
    torch.testing.assert_close(weights, torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]))


def test_a_sum_in_a_short_format_is_kept_in_a_long_one():
    """256 + 1 is 256 in bfloat16."""
    past = RunningSum.empty(torch.empty(1, 2, dtype=torch.bfloat16))
    for _ in range(300):
        past = past.append(torch.ones(1, 2, dtype=torch.bfloat16))
    assert past.mean().tolist() == [[1, 1]]


def test_a_model_with_it_has_no_heads_in_the_decoders_self_attention():
    torch.manual_seed(3)
    sizes = SIZES | {"encoder_layers": 2, "decoder_layers": 1, "vocab_size": 31}
    model = build(TransformerConfig.model_validate(sizes)).eval()
    assert {(head.kind, head.layer) for head in heads_of(model)} == {("encoder", 0), ("encoder", 1), ("cross", 0)}
    tokens, request = Tokens(torch.tensor([[5, 6, 7]]), torch.tensor([3])), AttentionRequest(decoder="all", heads=(2,))
    (weights,) = model.decode(model.encode(tokens), tokens, attention=request).attention.decoder.values()
    assert weights.shape == (1, 1, 3, 3)
    assert weights[0, 0, 1].tolist() == [0.5, 0.5, 0]


def test_a_window_is_refused():
    with pytest.raises(ValidationError, match="decoder_self_attention = 'average' sums up all of the past"):
        TransformerConfig.model_validate(SIZES | {"attention_window": 4})
    with pytest.raises(ValidationError, match="average_gate = false is for decoder_self_attention = 'average'"):
        TransformerConfig(average_gate=False)
