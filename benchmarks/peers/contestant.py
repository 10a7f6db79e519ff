"""All ways to train one model that a benchmark compares, each as one function."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, final
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.peers.marian import ATTENTION, MarianPeer, has_marian
from benchmarks.peers.torch_nn import TorchPeer
from transduce.config import TrainConfig, TransformerConfig
from transduce.data import Batch
from transduce.kernels import has_native, resolve_precision
from transduce.models import Transformer
from transduce.training import make_optimizer, train_step

Family = Literal["ours", "transformers", "torch.nn", "products"]
# One training step at a rate; returns the loss before it, in nats per target token, on the device.
TrainStep = Callable[[Batch, float], Tensor]

RATE: Final = 1e-4  # of learning: any that lets the weights stay finite
PEERS: Final = ("transformers", "torch.nn")
_IGNORED: Final = -100  # what torch's cross-entropy leaves out


@final
@dataclass(frozen=True)
class Contestant:
    """One way to train. Only those that are ``comparable`` keep weights and optimizer in float32, as we do."""

    family: Family
    name: str
    precision: str
    comparable: bool = True

    def __str__(self) -> str:
        return f"{self.name} in {self.precision}"


def make_contestants(ours: Transformer, *, compiled: bool = False) -> Iterator[tuple[Contestant, TrainStep]]:
    """Ours first, as shipped before its variants; then all peers that are installed, each with a copy of our weights.

    Those of one name share weights and optimizer. They are made one after the other, so that a caller who drops each
    needs the memory of one. ``compiled`` adds each peer by ``torch.compile``.
    """
    yield from _make_ours(ours)
    if has_marian(ours):
        for attention in ATTENTION:
            yield from _make_peer("transformers", f"MarianMTModel, {attention}", MarianPeer(ours, attention), compiled)
    yield from _make_peer("torch.nn", "nn.Transformer", TorchPeer(ours), compiled)
    if has_marian(ours):
        yield _make_narrow("transformers", "MarianMTModel, sdpa", MarianPeer(ours, "sdpa"))
    yield _make_narrow("torch.nn", "nn.Transformer", TorchPeer(ours))


def find_step(contestant: Contestant, config: TransformerConfig, device: torch.device) -> TrainStep:
    """A contestant's step, of the same weights as every other's."""
    torch.manual_seed(1)
    steps = make_contestants(Transformer(config).to(device), compiled="compiled" in contestant.name)
    found = next(step for each, step in steps if each == contestant)
    gc.collect()  # those before it
    return found


def peer_loss(peer: nn.Module, batch: Batch) -> Tensor:
    """The mean objective of a batch, in nats per target token, by a peer."""
    device = next(peer.parameters()).device
    source, source_lengths, target, labels, target_lengths = (
        torch.from_numpy(array)
        for array in (batch.source, batch.source_lengths, batch.target, batch.labels, batch.target_lengths)
    )
    real = torch.arange(source.shape[1]) < source_lengths.unsqueeze(1)
    labels = labels.masked_fill(torch.arange(labels.shape[1]) >= target_lengths.unsqueeze(1), _IGNORED)
    # Without padding no mask is needed, which saves the peers some work.
    mask = None if real.all() else real.to(device)
    loss: Tensor = peer(source.to(device), mask, target.to(device), labels.to(device))
    return loss


def _make_ours(model: Transformer) -> Iterator[tuple[Contestant, TrainStep]]:
    optimizer, device = make_optimizer(model, TrainConfig()), model.embedding.weight.device

    def make(dtype: torch.dtype, enter: Callable[[], AbstractContextManager[object]] = nullcontext) -> TrainStep:
        def step(batch: Batch, rate: float) -> Tensor:
            with enter():
                return train_step(model, optimizer, [batch], rate, dtype).losses.objective / batch.target_tokens

        return step

    auto = resolve_precision("auto", device)
    yield Contestant("ours", "transduce", _name(auto)), make(auto)
    for name, enter in (_CUDA_VARIANTS if device.type == "cuda" else {}).items():
        yield Contestant("ours", name, _name(auto)), make(auto, enter)
    if has_native(model.embedding.weight):
        yield Contestant("ours", "transduce without C++", _name(auto)), make(auto, _without_native)
    if auto != torch.float32:
        yield Contestant("ours", "transduce", _name(torch.float32)), make(torch.float32)


def _make_peer(family: Family, name: str, peer: nn.Module, compiled: bool) -> Iterator[tuple[Contestant, TrainStep]]:
    optimizer = make_optimizer(peer, TrainConfig())
    for dtype in (torch.float32, torch.bfloat16):
        yield Contestant(family, name, _name(dtype)), _make_step(peer, peer, optimizer, dtype)
        if compiled:
            fast: nn.Module = torch.compile(peer, dynamic=True)  # type: ignore[assignment]
            yield Contestant(family, f"{name}, compiled", _name(dtype)), _make_step(peer, fast, optimizer, dtype)


def _make_narrow(family: Family, name: str, peer: nn.Module) -> tuple[Contestant, TrainStep]:
    """A peer whose weights and optimizer are bfloat16 too: fast, but small updates of large weights are lost."""
    peer = peer.to(torch.bfloat16)
    step = _make_step(peer, peer, make_optimizer(peer, TrainConfig()), torch.float32)
    return Contestant(family, name, "bfloat16 weights", comparable=False), step


def _make_step(peer: nn.Module, run: nn.Module, optimizer: torch.optim.Adam, dtype: torch.dtype) -> TrainStep:
    device = next(peer.parameters()).device.type

    def step(batch: Batch, rate: float) -> Tensor:
        peer.train()
        with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
            loss = peer_loss(run, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def _name(dtype: torch.dtype) -> str:
    return "float32" if dtype == torch.float32 else "bfloat16 autocast"


def _without_native() -> AbstractContextManager[object]:
    return patch("transduce.kernels.native._library", lambda: None)


def _without_triton() -> AbstractContextManager[object]:
    return patch("transduce.kernels.gpu.has_triton", lambda *_: False)


def _without_graphs() -> AbstractContextManager[object]:
    return patch("transduce.training.step.passes_of", lambda *_: None)


_CUDA_VARIANTS: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    "transduce without CUDA graphs": _without_graphs,
    "transduce without Triton": _without_triton,
}
