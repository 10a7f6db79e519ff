"""Whole passes as a CUDA device has them, by Triton's interpreter on a processor, beside the plain ones."""

import os
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is made
pytest.importorskip("triton", "3.9", reason="Triton, whose interpreter runs these kernels, is not installed")

import numpy as np
import torch

from transduce.config import preset
from transduce.data import Batch
from transduce.kernels import make_seed
from transduce.models import build
from transduce.training import compute_loss
from transduce.training.graphs import GraphedPasses

SMALL = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "d_ff": 48, "heads": 2, "vocab_size": 101}
KINDS = {
    "post-norm": {"attention_bias": True},
    "pre-norm": {"norm": "pre", "attention_bias": True},
    "no bias": {"feed_forward_bias": False},
    "no residual": {"residual": False, "attention_bias": True},
    "output bias": {"output_bias": True},
}


@contextmanager
def pretended_device():
    """Triton's kernels for all, and float32 where bfloat16 would be rounded: what is wrong stands out then."""
    with ExitStack() as stack:
        for name, value in (
            ("transduce.kernels.gpu.has_triton", lambda *_: True),
            ("transduce.kernels.ragged_attention._HALF", (torch.float32,)),
            ("torch.is_autocast_enabled", lambda *_: True),
            ("torch.get_autocast_dtype", lambda *_: torch.float32),
            ("torch.bfloat16", torch.float32),
        ):
            stack.enter_context(patch(name, value))
        yield


def make_batch(pairs, longest=12):
    random = np.random.default_rng(pairs)
    lengths = random.integers(1, longest, (2, pairs))
    source, target, labels = (random.integers(4, 101, (pairs, side.max())) for side in lengths[[0, 1, 1]])
    return Batch(source, lengths[0], target, labels, lengths[1], rows=np.arange(pairs) * 7)


def make_model(changes):
    """Biases and gains that are not what they begin with, so that a missing one is seen."""
    torch.manual_seed(1)
    model = build(preset("base", {**SMALL, **changes})).train()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=float(name.endswith("norm.weight")), std=0.1)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_of_the_weights_as_they_are(kind, monkeypatch):
    """Twice with other weights in between: what was rounded must follow."""
    model, batch, seed = make_model(KINDS[kind]), make_batch(3), make_seed(5)
    monkeypatch.setattr("transduce.kernels.native._library", lambda: None)
    passes = GraphedPasses(model, torch.float32)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        right = compute_loss(model, batch, torch.float32, seed)
        right.objective.backward()
        expected = {name: weight.grad.clone() for name, weight in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        with pretended_device():
            found = passes.run(batch, seed, 1.0)
        torch.testing.assert_close(found.objective, right.objective.detach(), rtol=1e-5, atol=0)
        for name, weight in model.named_parameters():
            if name.endswith("key.bias"):
                continue  # softmax does not see it
            size = expected[name].abs().max().clamp(min=1e-3)
            torch.testing.assert_close(weight.grad, expected[name], rtol=1e-3, atol=1e-4 * float(size), msg=name)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
