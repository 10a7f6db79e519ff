"""What a checkpoint holds, copied to memory of the processor, so that training can go on while it is written."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from transduce.training.parallel import whole
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress


@dataclass(frozen=True)
class Snapshot:
    """A training at one step: weights by name, Adam's state as ``NAME.exp_avg`` and so on, and how far it has come."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    progress: Progress


def look(model: nn.Module, optimizer: torch.optim.Adam, progress: Progress) -> Snapshot:
    """The training's own tensors: they change with its next step."""
    moments = {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    return Snapshot(dict(model.state_dict()), moments, progress)


@final
class Copies:
    """Memory for one snapshot, used again and again: to ask for it anew each time takes longer than to copy."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def reserve(self, model: nn.Module) -> None:
        """Ask for all of it before it is needed, and touch it: only then does the system give it."""
        for name, weight in model.named_parameters():
            for key in (name, f"{name}.exp_avg", f"{name}.exp_avg_sq"):
                self._reserve(key, weight).zero_()

    def take(self, snapshot: Snapshot, processes: Processes = ALONE) -> Snapshot:
        """A copy of these tensors, good until the next one is taken.

        Where they are spread over processes, all must call it; they are gathered one at a time, and the first process
        alone keeps them.
        """
        copied: list[dict[str, Tensor]] = [{}, {}]
        for copies, tensors in zip(copied, (snapshot.weights, snapshot.optimizer), strict=True):
            for name, tensor in tensors.items():
                gathered = whole(tensor)
                if processes.first:
                    copies[name] = self._reserve(name, gathered).copy_(gathered, non_blocking=True)
        if any(tensor.is_cuda for tensor in snapshot.weights.values()):
            torch.cuda.synchronize()
        return Snapshot(copied[0], copied[1], snapshot.progress)

    def _reserve(self, name: str, like: Tensor) -> Tensor:
        if name not in self._copies:
            # Pinned memory is what a GPU can write to by itself.
            self._copies[name] = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        return self._copies[name]
