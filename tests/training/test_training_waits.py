"""A step never waits for the device: nothing in it asks what stands in a tensor there."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from transduce.config import preset
from transduce.data import Batch
from transduce.kernels import ragged
from transduce.models import build
from transduce.training import step, train_step

META = torch.device("meta")
BATCH = Batch(np.full((3, 7), 5), np.array([7, 2, 3]), np.full((3, 11), 5), np.full((3, 11), 5), np.array([1, 11, 5]))


class Arrivals(TorchDispatchMode):
    """Counts the tensors that come from the processor to the device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), settings=None):
        settings = settings or {}
        if function is torch.ops.aten._to_copy.default and arguments[0].device != META:
            self.count += settings.get("device") == META
        return function(*arguments, **settings)


@pytest.fixture
def sent(monkeypatch):
    """What was sent without waiting."""
    tensors = []

    def send(x, device):
        tensors.append(x)
        return x.to(device)

    for module in (ragged, step):
        monkeypatch.setattr(module, "send", send)
    return tensors


@pytest.mark.parametrize("variable_length", [False, True])
def test_on_tensors_without_data(variable_length, sent, monkeypatch):
    """Nobody can read a tensor of the device "meta": to wait for its numbers is an error there."""
    monkeypatch.setattr("torch.autocast", lambda *_, **__: nullcontext())  # which that device does not know
    monkeypatch.setattr("torch.is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_varlen", lambda *_: variable_length)
    changes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 24, "heads": 2, "vocab_size": 29}
    monkeypatch.setattr("transduce.training.step._move", lambda optimizer, *_: optimizer.step())  # nor fused Adam
    with META:
        model = build(preset("base", changes))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    train_step(model, optimizer, [BATCH], 1e-3, torch.float32)  # after which the tables of sinusoids are there
    sent.clear()
    with Arrivals() as arrivals:
        sums = train_step(model, optimizer, [BATCH, BATCH], 1e-3, torch.float32).losses
    assert sums.nll.device == META
    # Of each batch: three arrays of ids; where the symbols of the source, target and labels lie, and, for the
    # kernels of different lengths, where the sequences of both sides end.
    assert len(sent) == arrivals.count == 2 * (3 + 3 + 2 * variable_length)


def test_the_test_notices():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3, device=META).sum().item()
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3, device=META)[torch.ones(3, dtype=torch.bool, device=META)]
