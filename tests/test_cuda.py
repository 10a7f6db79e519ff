"""The CUDA paths beside the processor's, on a machine that has such a device: ``pytest -m cuda``."""

import copy

import numpy as np
import pytest
import torch

from transduce.config import TrainConfig, preset
from transduce.data import Batch
from transduce.kernels import (
    WHOLE,
    Heads,
    RaggedAttention,
    RaggedLayout,
    Scoring,
    add_norm,
    attend_ragged,
    projected_cross_entropy,
)
from transduce.kernels.loss import _LOGITS
from transduce.kernels.varlen import has_varlen
from transduce.models import build
from transduce.training import compute_loss, make_optimizer, step_seed, train_step
from transduce.training.graphs import passes_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}
HEADS = Heads(3, 16, 16)
QUERIES, KEYS = (7, 1, 131, 18), (2, 13, 3, 17)
LONG = (7, 300, 65)
SMALL = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "d_ff": 96, "heads": 4, "vocab_size": 101}


def copies(*tensors):
    """Of leaves: in float64 on the processor, and as they are on the device."""
    exact = [x.double().requires_grad_() for x in tensors]
    return exact, [x.to(CUDA).requires_grad_() for x in tensors]


def assert_alike(found, expected, tolerance):
    for each, right in zip(found, expected, strict=True):
        scale = right.double().abs().max().clamp(min=1).item()
        torch.testing.assert_close(each.cpu().double(), right.double(), rtol=tolerance, atol=tolerance * scale)


def make_batch(pairs):
    """Random pairs of mixed lengths."""
    random = np.random.default_rng(pairs)
    lengths = random.integers(1, 23, (2, pairs))
    source, target, labels = (random.integers(4, 101, (pairs, side.max())) for side in lengths[[0, 1, 1]])
    return Batch(source, lengths[0], target, labels, lengths[1], rows=np.arange(pairs))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("own", "causal"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("asking", [QUERIES, (*QUERIES[:2], 18, 30), LONG])
def test_attention(asking, own, causal, dtype):
    torch.manual_seed(3)
    keys, width = (asking if own else KEYS[: len(asking)]), HEADS.widths[0]
    parts = [torch.randn(sum(asking), 3 * width if own else width)]
    parts += [] if own else [torch.randn(sum(keys), 2 * width)]
    exact, low = copies(*(x.to(dtype) for x in parts))
    assert has_varlen(low[0], 16) == (dtype == torch.bfloat16)
    found = []
    for tensors in (low, exact):
        layouts = [RaggedLayout.of(torch.tensor(n), max(n), tensors[0].device) for n in (asking, keys)]
        memory = None if own else tensors[1]
        output = attend_ragged(tensors[0], memory, RaggedAttention(*layouts, HEADS, Scoring(scale=0.3), causal=causal))
        torch.manual_seed(5)
        received = torch.randn(output.shape).to(output)
        found.append([output, *torch.autograd.grad(output, tensors, received)])
    assert_alike(*found, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("post", [False, True])
def test_sum_and_norm(post, dtype):
    torch.manual_seed(3)
    exact, low = copies(torch.randn(53, 64), torch.randn(53, 64), torch.rand(64), torch.randn(64))
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
        total, ready = add_norm(low[0], low[1].to(dtype), *low[2:], 1e-6, WHOLE, post=post)
    assert (total.dtype, ready.dtype) == (torch.float32, dtype)
    rounded = exact[1] if dtype == torch.float32 else exact[1] + (low[1].cpu().to(dtype).double() - exact[1]).detach()
    right = add_norm(exact[0], rounded, *exact[2:], 1e-6, WHOLE, post=post)
    weights = torch.randn(53, 64)
    gradients = [
        torch.autograd.grad((one * weights.to(one)).sum() + (two.to(one) * weights.to(one)).sum(), leaves)
        for (one, two), leaves in (((total, ready), low), (right, exact))
    ]
    assert_alike([total, ready, *gradients[0]], [*right, *gradients[1]], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_loss(dtype, monkeypatch):
    monkeypatch.setitem(_LOGITS, "cuda", 101 * 29)  # several chunks and a rest
    torch.manual_seed(3)
    labels = torch.randint(29, (613,))
    exact, low = copies(torch.randn(613, 16).to(dtype), torch.randn(29, 16).to(dtype))
    found = []
    for tensors in (low, exact):
        objective, nll = projected_cross_entropy(*tensors, labels.to(tensors[0].device), 0.1)
        found.append([objective / 613, nll / 613, *torch.autograd.grad(objective, tensors)])
    assert_alike(*found, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_whole_model(dtype):
    torch.manual_seed(3)
    model, batch = build(preset("base", {**SMALL, "dropout": 0.0})), make_batch(31)
    models = copy.deepcopy(model).to(CUDA), model
    means, gradients = [], []
    for each, precision in zip(models, (dtype, torch.float32), strict=True):
        sums = compute_loss(each, batch, precision)
        means.append(float(sums.objective.detach()) / batch.target_tokens)
        (sums.objective / batch.target_tokens).backward()
        gradients.append({name: weight.grad.cpu() for name, weight in each.named_parameters()})
    assert means[0] == pytest.approx(means[1], rel=TOLERANCE[dtype] / 3)
    for name, right in gradients[1].items():
        apart = (gradients[0][name] - right).norm() / right.norm().clamp(min=1e-6)
        assert apart < (1e-3 if dtype == torch.float32 else 0.15), name


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "attention_bias": True, "feed_forward": "gated"}])
def test_graphs_train_as_launches_one_by_one_do(changes, monkeypatch):
    """The same kernels on the same numbers: bit for bit, for shapes that come once, twice and often."""
    monkeypatch.setattr("transduce.training.graphs._FREE", 0.0)  # others may hold most of the device's memory
    batches, weights = [make_batch(pairs) for pairs in (31, 37, 31, 31, 5, 37, 31, 37)], []
    for recording in (True, False):
        torch.manual_seed(3)
        model = build(preset("base", {**SMALL, **changes})).to(CUDA)
        compute_loss(model, batches[0], torch.bfloat16)  # makes the table of positions, which graphs read
        passes = passes_of(model, torch.bfloat16)
        assert passes is not None
        monkeypatch.setattr(passes, "_recording", recording)
        optimizer = make_optimizer(model, TrainConfig())
        taken = [
            train_step(model, optimizer, [batch], 1e-3, torch.bfloat16, step_seed(1, number))
            for number, batch in enumerate(batches)
        ]
        assert len(passes._graphs) == (2 if recording else 0)
        weights.append([*(each.losses.nll for each in taken), *(weight.detach() for weight in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_graphs_learn_what_a_plain_pass_does():
    torch.manual_seed(3)
    model, batch = build(preset("base", SMALL)).to(CUDA), make_batch(31)
    seed, gradients = step_seed(1, 1), []
    sums = compute_loss(model, batch, torch.bfloat16, seed)
    sums.objective.backward()
    sums = sums.detach()
    gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    passes = passes_of(model, torch.bfloat16)
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        again = passes.run(batch, seed, 1.0)
    gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    assert float(again.objective) == pytest.approx(float(sums.objective), rel=1e-4)
    for name, right in gradients[0].items():
        assert (gradients[1][name] - right).norm() <= 0.02 * right.norm() + 1e-6, name


def test_training_learns_and_never_waits():
    torch.manual_seed(3)
    model, batches = build(preset("base", SMALL)).to(CUDA), [make_batch(pairs) for pairs in (31, 37)]
    optimizer, losses = make_optimizer(model, TrainConfig()), []
    for number in range(120):
        # The first steps find out what the device can do.
        torch.cuda.set_sync_debug_mode("error" if number >= 10 else "default")
        try:
            sums = train_step(model, optimizer, [batches[number % 2]], 2e-3, torch.bfloat16).losses
        finally:
            torch.cuda.set_sync_debug_mode("default")
        losses.append(sums.nll / sums.tokens)
    assert float(losses[-1]) < 0.7 * float(losses[0])
