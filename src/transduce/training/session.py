"""What a training works with, and how it speaks of how far it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transduce.config import SpecialIds, TrainConfig
from transduce.data import Resegment, Store, Stream
from transduce.kernels import resolve_precision
from transduce.models import LossSums, TrainableModel
from transduce.training.processes import ALONE, Processes
from transduce.training.progress import Progress
from transduce.training.report import Report
from transduce.training.requests import Requests


@dataclass(frozen=True)
class Corpora:
    """What a training reads."""

    train: Store | Stream
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
    check_place: Callable[[], None] = lambda: None  # before anything is written; an OSError says that it must not be


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
    loads: torch.Tensor | None = None  # of mixtures of experts: the symbols of each expert, layer by layer

    @classmethod
    def zero(cls, device: torch.device) -> "Sums":
        """Nothing summed yet."""
        return cls(torch.zeros((), dtype=torch.float64, device=device), 0)

    def add(self, losses: LossSums, tokens: int, sound: torch.Tensor | None = None) -> "Sums":
        """One batch or step more; its losses are left out where it was not ``sound``."""
        nll, auxiliary, loads = (
            each if each is None or sound is None else each.where(sound, 0)
            for each in (losses.nll, losses.auxiliary, losses.loads)
        )
        assert nll is not None
        if auxiliary is not None:
            auxiliary = auxiliary.to(self.nll.dtype) if self.auxiliary is None else self.auxiliary + auxiliary
        if loads is not None and self.loads is not None:
            loads = self.loads + loads
        return Sums(self.nll + nll, self.tokens + tokens, auxiliary, loads)

    def without(self, tokens: int) -> "Sums":
        """Without the tokens of a step whose losses were none."""
        return replace(self, tokens=self.tokens - tokens)

    def mean(self, processes: Processes = ALONE) -> float:
        """Nats per target token: the tokens are counted for all processes, the losses are each one's own."""
        return processes.sum([float(self.nll)])[0] / max(1, self.tokens)

    def own_figures(self, processes: Processes = ALONE) -> dict[str, Any]:
        """What the model itself measures, as ``metrics.jsonl`` has it: the mean of its own loss, without weights, too.

        ``expert_loads``: of each layer with a mixture of experts, which part of its symbols each expert has had.
        ``busiest_expert``: the symbols of a layer's busiest one divided by the mean over its experts: 1 where all have
        as many.
        """
        own: dict[str, Any] = {}
        if self.auxiliary is not None:
            own["auxiliary_loss"] = processes.sum([float(self.auxiliary)])[0] / max(1, self.tokens)
        if self.loads is not None:
            layers, experts = self.loads.shape
            loads = np.array(processes.sum(self.loads.flatten().tolist())).reshape(layers, experts)
            busiest = loads.max(axis=1) / np.maximum(loads.mean(axis=1), 1 / experts)
            own["busiest_expert"] = [round(float(ratio), 4) for ratio in busiest]
            own["expert_loads"] = (loads / np.maximum(loads.sum(axis=1, keepdims=True), 1)).round(4).tolist()
        return own


def describe(split: str, progress: Progress, loss: float | None, rate: float) -> dict[str, Any]:
    """A measurement as it stands in ``metrics.jsonl``."""
    return {
        "step": progress.step,
        "split": split,
        **({} if loss is None else {"loss": loss}),
        "learning_rate": rate,
        "target_tokens": progress.target_tokens,
        "seconds": round(progress.seconds, 3),
    }
