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


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("counted", [1, 101, 150, 202, 300])  # within chunks of 101, and between them
def test_the_first_tokens_count_alone(counted, monkeypatch):
    monkeypatch.setitem(_LOGITS, "cpu", 101 * 29)
    torch.manual_seed(5)
    hidden = torch.randn(300, 13, requires_grad=True)
    weight = torch.randn(29, 13, requires_grad=True)
    labels = torch.randint(29, (300,))
    plain = projected_cross_entropy(hidden[:counted], weight, labels[:counted], 0.1)
    plain[0].backward()
    expected = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    found = projected_cross_entropy(hidden, weight, labels, 0.1, counted)
    found[0].backward()
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close((hidden.grad, weight.grad), expected, rtol=1e-5, atol=1e-5)


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
