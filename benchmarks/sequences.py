"""Made-up sequences to copy or to reverse, and a short training on them: enough to see what a model can do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
import torch

from transduce.config import TrainConfig, TransformerConfig
from transduce.data import Batch
from transduce.models import Transformer
from transduce.training import compute_loss, learning_rate, make_optimizer, train_step

# Ids of the padding (which these sequences, all of one length, have not), begin and end symbols; then the symbols.
BEGIN, END, FIRST = 1, 2, 3
HELD_OUT: Final = 1_000_000  # a seed that no training uses


@final
@dataclass(frozen=True)
class Task:
    """Sequences of ``length`` symbols out of ``symbols``, drawn evenly; the target is the source, or its reverse."""

    name: Literal["copy", "reverse"]
    length: int
    symbols: int

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return FIRST + self.symbols

    def batch(self, rows: int, seed: int) -> Batch:
        """The same for the same seed."""
        source = np.random.default_rng(seed).integers(FIRST, self.vocab_size, (rows, self.length))
        target = source if self.name == "copy" else source[:, ::-1]
        lengths = np.full(rows, self.length + 1)
        begin, end = (np.full((rows, 1), symbol) for symbol in (BEGIN, END))
        return Batch(np.hstack([source, end]), lengths, np.hstack([begin, target]), np.hstack([target, end]), lengths)


@final
@dataclass(frozen=True)
class Regime:
    """How long and how fast to train."""

    steps: int
    rows: int
    warmup_steps: int
    factor: float


def train(config: TransformerConfig, task: Task, regime: Regime, seed: int) -> tuple[Transformer, list[float]]:
    """A model trained from that seed, and its loss at every step, in nats per target token without smoothing."""
    torch.manual_seed(seed)
    model = Transformer(config)
    return model, list(_steps(model, task, regime, seed))


def _steps(model: Transformer, task: Task, regime: Regime, seed: int) -> Iterator[float]:
    optimizer = make_optimizer(model, TrainConfig())
    for step in range(1, regime.steps + 1):
        rate = learning_rate(step, model.config.d_model, regime.warmup_steps, regime.factor)
        batch = task.batch(regime.rows, seed * regime.steps + step)
        losses = train_step(model, optimizer, [batch], rate, torch.float32).losses
        yield float(losses.nll / losses.tokens)


@torch.no_grad()
def held_out_loss(model: Transformer, task: Task, rows: int) -> float:
    """Nats per target token on sequences that no training saw."""
    model.eval()
    losses = compute_loss(model, task.batch(rows, HELD_OUT), torch.float32)
    return float(losses.nll / losses.tokens)
