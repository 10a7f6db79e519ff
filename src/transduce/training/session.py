"""What a training works with, and how it speaks of how far it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from transduce.config import SpecialIds, TrainConfig
from transduce.data import Resegment, Store
from transduce.kernels import resolve_precision
from transduce.models import LossSums, TrainableModel
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress
from transduce.training.report import Report
from transduce.training.requests import Requests


@dataclass(frozen=True)
class Corpora:
    """What a training reads."""

    train: Store
    dev: Store
    special: SpecialIds
    weights: tuple[float, ...] = (1.0,)  # how often an epoch has the pairs of each training corpus
    resegment: Callable[[int], Resegment] | None = None  # for each epoch, how its lines are tokenized anew


@dataclass(frozen=True)
class Sample:
    """A sentence of dev and what was written for it."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class DevOutputs:
    """What a model's outputs for dev are worth, by the metrics' keys, and the first of them to look at."""

    scores: Mapping[str, float]
    samples: Sequence[Sample] = ()


@dataclass(frozen=True)
class Hooks:
    """What the loop leaves to others: it knows neither text nor where the best model goes."""

    translate_dev: Callable[[TrainableModel], DevOutputs]
    save_best: Callable[[TrainableModel], None]


@dataclass(frozen=True)
class Training:
    """Everything that a training works with.

    With ``own_process`` nothing else lives in this process: what its memory allocator does may be set for good.
    """

    model: TrainableModel
    optimizer: torch.optim.Adam
    corpora: Corpora
    config: TrainConfig
    checkpoints: Path
    report: Report
    hooks: Hooks
    requests: Requests = field(default_factory=Requests)
    processes: Processes = ALONE
    session_only: bool = False  # max_minutes ends this session only, and the training goes on another time
    own_process: bool = False

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """What matrix products are computed in."""
        return resolve_precision(self.config.precision, self.device)


@dataclass(frozen=True)
class Sums:
    """Losses summed on the device since the last measurement, so that a step need not wait for the figure."""

    nll: torch.Tensor
    tokens: int
    auxiliary: torch.Tensor | None = None  # of models that have such a loss

    @classmethod
    def zero(cls, device: torch.device) -> "Sums":
        """Nothing summed yet."""
        return cls(torch.zeros((), dtype=torch.float64, device=device), 0)

    def add(self, losses: LossSums, tokens: int, sound: torch.Tensor | None = None) -> "Sums":
        """One batch or step more; its losses are left out where it was not ``sound``."""
        nll, auxiliary = losses.nll, losses.auxiliary
        if sound is not None:
            nll, auxiliary = nll.where(sound, 0), None if auxiliary is None else auxiliary.where(sound, 0)
        if auxiliary is not None:
            auxiliary = auxiliary.to(self.nll.dtype) if self.auxiliary is None else self.auxiliary + auxiliary
        return Sums(self.nll + nll, self.tokens + tokens, auxiliary)

    def without(self, tokens: int) -> "Sums":
        """Without the tokens of a step whose losses were none."""
        return Sums(self.nll, self.tokens - tokens, self.auxiliary)

    def mean(self, processes: Processes = ALONE) -> float:
        """Nats per target token: the tokens are counted for all processes, the losses are each one's own."""
        return processes.sum([float(self.nll)])[0] / max(1, self.tokens)

    def own_loss(self, processes: Processes = ALONE) -> dict[str, float]:
        """The mean of the model's own loss as ``metrics.jsonl`` has it, where there is one; without weights, too."""
        if self.auxiliary is None:
            return {}
        return {"auxiliary_loss": processes.sum([float(self.auxiliary)])[0] / max(1, self.tokens)}


def describe(split: str, progress: Progress, loss: float, rate: float) -> dict[str, Any]:
    """A measurement as it stands in ``metrics.jsonl``."""
    return {
        "step": progress.step,
        "split": split,
        "loss": loss,
        "learning_rate": rate,
        "target_tokens": progress.target_tokens,
        "seconds": round(progress.seconds, 3),
    }
