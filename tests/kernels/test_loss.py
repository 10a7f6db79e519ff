import math

import pytest
import torch

from transduce.kernels import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.loss import _LOGITS


def test_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]]))
    objective, nll = smoothed_cross_entropy(logits, torch.tensor([1]), 0.3)
    assert nll.item() == pytest.approx(-math.log(0.2))
    uniform = -(math.log(0.7) + math.log(0.2) + math.log(0.1)) / 3
    assert objective.item() == pytest.approx(0.7 * -math.log(0.2) + 0.3 * uniform)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agrees_with_torch(smoothing):
    logits, labels = torch.randn(7, 11), torch.randint(11, (7,))
    expected = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    assert smoothed_cross_entropy(logits, labels, smoothing)[0].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [1, 101, 613])  # less than a chunk, a whole one, several and a rest
def test_fused_equals_plain_with_gradients(smoothing, tokens, monkeypatch):
    monkeypatch.setitem(_LOGITS, "cpu", 101 * 29)
    torch.manual_seed(3)
    hidden = torch.randn(tokens, 13, requires_grad=True)
    weight = torch.randn(29, 13, requires_grad=True)
    labels = torch.randint(29, (tokens,))
    plain = smoothed_cross_entropy(hidden @ weight.T, labels, smoothing)
    (plain[0] * 0.37).backward()
    expected = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    fused = projected_cross_entropy(hidden, weight, labels, smoothing)
    (fused[0] * 0.37).backward()
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close((hidden.grad, weight.grad), expected, rtol=1e-4, atol=1e-4)


def differentiate(hidden, weight, labels, weights=None):
    hidden, weight = (each.clone().requires_grad_() for each in (hidden, weight))
    objective, nll = projected_cross_entropy(hidden, weight, labels, 0.1, weights)
    (objective * 0.37).backward()
    return objective.detach(), nll, hidden.grad, weight.grad


@pytest.fixture(params=[torch.float32, torch.bfloat16])
def weighted(request, monkeypatch):
    """300 tokens in chunks of 101."""
    monkeypatch.setitem(_LOGITS, "cpu", 101 * 29)
    torch.manual_seed(5)
    hidden, weight = torch.randn(300, 13).to(request.param), torch.randn(29, 13)
    return hidden, weight, torch.randint(29, (300,))


@pytest.mark.usefixtures("way")
def test_weights_of_one_change_no_bit(weighted):
    for found, expected in zip(differentiate(*weighted, torch.ones(300)), differentiate(*weighted), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("weights", [[2.0, 1.0], [0.0, 3.0], [-1.5, 0.25]])
def test_weights_multiply_each_tokens_gradient(weights, weighted):
    """Against the tokens of each weight alone; with 0 they are left out of both sums."""
    hidden, weight, labels = weighted
    chosen = torch.rand(300) < 0.5
    found = differentiate(*weighted, torch.where(chosen, *weights))
    parts = [differentiate(hidden[which], weight, labels[which]) for which in (chosen, ~chosen)]
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if hidden.dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    for index in (0, 3):
        expected = sum(factor * part[index] for factor, part in zip(weights, parts, strict=True))
        torch.testing.assert_close(found[index], expected, **tolerance)
    nll = sum(part[1] for factor, part in zip(weights, parts, strict=True) if factor)
    torch.testing.assert_close(found[1], nll, rtol=1e-5, atol=1e-4)
    for factor, part, which in zip(weights, parts, (chosen, ~chosen), strict=True):
        torch.testing.assert_close(found[2][which], factor * part[2], **tolerance)


@pytest.mark.usefixtures("way")
def test_a_token_of_weight_zero_is_left_out_whatever_it_is(weighted):
    """Not multiplied with 0: that would make NaN of a score that is infinite."""
    hidden, weight, labels = weighted
    hidden[150] = torch.inf
    weights = torch.ones(300)
    weights[150] = 0
    objective, nll = projected_cross_entropy(hidden, weight, labels, 0.1, weights)
    assert objective.isfinite()
    assert nll.isfinite()


def test_the_plain_formula_has_the_same_weights():
    logits, labels = torch.randn(7, 11), torch.randint(11, (7,))
    weights = torch.tensor([1.0, 0, 2, -0.5, 1, 0, 3])
    objective, nll = smoothed_cross_entropy(logits, labels, 0.1, weights)
    each = [smoothed_cross_entropy(logits[[i]], labels[[i]], 0.1) for i in range(7)]
    assert objective.item() == pytest.approx(sum(w * part[0].item() for w, part in zip(weights, each, strict=True)))
    assert nll.item() == pytest.approx(sum(part[1].item() for w, part in zip(weights, each, strict=True) if w))


@pytest.mark.usefixtures("way")
def test_without_gradients_gives_the_same_sums():
    hidden, weight, labels = torch.randn(300, 13), torch.randn(29, 13), torch.randint(29, (300,))
    with torch.no_grad():
        fused = projected_cross_entropy(hidden, weight, labels, 0.1)
    torch.testing.assert_close(fused, smoothed_cross_entropy(hidden @ weight.T, labels, 0.1), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("way")
def test_autocast_multiplies_in_its_format():
    hidden = torch.randn(31, 13, requires_grad=True)
    weight = torch.randn(29, 13, requires_grad=True)
    labels = torch.randint(29, (31,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective, _ = projected_cross_entropy(hidden, weight, labels, 0.1)
    objective.backward()
    rounded = smoothed_cross_entropy(hidden.bfloat16() @ weight.bfloat16().T, labels, 0.1)[0]
    torch.testing.assert_close(objective, rounded, rtol=1e-3, atol=1e-3)
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.float32
