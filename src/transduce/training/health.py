"""Infinite and NaN gradients, and spikes of the loss: which steps are skipped, and which batches are left out."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from jaxtyping import Float
from pydantic import BaseModel, ConfigDict
from torch import Tensor

_FEW: Final = 3  # steps in a row whose gradient is infinite or NaN: now it is not the batches alone
_TIMES: Final = 3  # that a training goes back to one checkpoint before it gives up
_MEMORY: Final = 0.98  # of the usual loss for what it was a step ago: about fifty steps
_BEGINNING: Final = 50  # steps before anything is usual
_SPIKE: Final = 6.0  # times as far from the usual loss as is usual ...
_LEAST_SPIKE: Final = 0.5  # ... and at least so many nats
# A model that knows nothing but how frequent each symbol is, as any does soon, is better than a uniform guess.
_LEARNED: Final = 300  # steps after which a model has learned that
_WORSE: Final = 1.0  # nats above a uniform guess, and above what it has been, that are no chance


class Place(NamedTuple):
    """A batch of the plan: its epoch, its window of that, its number in the window, all counted from 0."""

    epoch: int
    window: int
    batch: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} window {self.window} batch {self.batch}"


@final
@dataclass(frozen=True)
class Examined:
    """What a step was like: where its batches stand, their loss in nats per target token, the whole gradient's norm."""

    step: int
    places: tuple[Place, ...]
    tokens: int
    loss: float
    gradient_norm: float

    @property
    def finite(self) -> bool:
        """Whether its gradient is finite, so that the weights were moved."""
        return math.isfinite(self.gradient_norm)

    def __str__(self) -> str:
        return f"step {self.step} ({', '.join(map(str, self.places))})"


@final
class Examiner:
    """Reads what steps were like when the device has computed it, so that none waits for its own figures."""

    def __init__(self, behind: int) -> None:
        """``behind`` steps may be under way, of which nothing is known yet."""
        self._behind = behind
        self._unread: deque[tuple[int, tuple[Place, ...], int, Tensor, Tensor]] = deque()

    def add(
        self, step: int, places: tuple[Place, ...], tokens: int, loss: Float[Tensor, ""], norm: Float[Tensor, ""]
    ) -> None:
        """A step more."""
        self._unread.append((step, places, tokens, loss, norm))

    def read(self, *, everything: bool = False) -> Iterator[Examined]:
        """Those that may be read now, or all."""
        while len(self._unread) > (0 if everything else self._behind):
            step, places, tokens, loss, norm = self._unread.popleft()
            yield Examined(step, places, tokens, float(loss), float(norm))


class Health(BaseModel):
    """What ``Progress`` remembers of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    skipped: int = 0  # steps, since the training began
    in_a_row: int = 0  # of them, the last ones
    failing: tuple[Place, ...] = ()  # their batches
    excluded: tuple[Place, ...] = ()  # batches that no step learns from any more
    back_to: int | None = None  # the checkpoint that it has last gone back to ...
    times: int = 0  # ... and how often
    judged: int = 0  # steps that the usual loss is of
    usual: float = 0.0  # loss
    spread: float = 0.0  # the usual distance from the usual loss
    leaping: bool = False  # the last loss was a spike, far above the usual one
    lowest: float | None = None  # that the usual loss has been
    diverged: bool = False  # the usual loss has left that, and is far above that of a uniform guess

    @property
    def lost(self) -> bool:
        """Whether to go back, rather than on."""
        return self.in_a_row >= _FEW

    def is_hopeless(self, step: int) -> bool:
        """Whether to go back to a step would be in vain."""
        return self.back_to == step and self.times >= _TIMES

    def judge(self, examined: Examined) -> tuple["Health", str | None]:
        """After one step more; and what is to be said of it."""
        return self._go_on(examined) if examined.finite else self._skip(examined)

    def compare(self, symbols: int) -> tuple["Health", str | None]:
        """With the loss of a uniform guess among so many symbols; and what is to be said where it has become worse.

        What begins high, as a finished model does on other text, and falls, has not diverged.
        """
        guess = math.log(symbols)
        if self.diverged and self.usual < guess:
            return self.model_copy(update={"diverged": False}), None
        if self.diverged or self.judged < _LEARNED or self.lowest is None:
            return self, None
        if self.usual < max(guess, self.lowest) + _WORSE:
            return self, None
        return self.model_copy(update={"diverged": True}), (
            f"the loss is about {self.usual:.1f} nats per target token, where it has been {self.lowest:.1f}: a uniform "
            f"guess among all {symbols:,} symbols has {guess:.1f}. The training has diverged"
        )

    def go_back(self, then: "Health", step: int) -> "Health":
        """After going back to a step, when it was as it was then; what made it fail is left out from now on."""
        changes = {
            "skipped": self.skipped,
            "excluded": (*self.excluded, *self.failing),
            "back_to": step,
            "times": self.times + 1 if self.back_to == step else 1,
        }
        return then.model_copy(update=changes)

    def _skip(self, examined: Examined) -> tuple["Health", str]:
        failing = {"in_a_row": self.in_a_row + 1, "failing": (*self.failing, *examined.places)}
        return (
            self.model_copy(update={"skipped": self.skipped + 1} | failing),
            f"{examined}: the gradient's norm is {examined.gradient_norm}, the loss {examined.loss:.4g}: skipped, the "
            f"weights stay as they are ({self.skipped + 1} so far)",
        )

    def _go_on(self, examined: Examined) -> tuple["Health", str | None]:
        if not math.isfinite(examined.loss):  # of several processes, one that the step had nothing for
            return self.model_copy(update={"in_a_row": 0, "failing": ()}), None
        loss, bound = examined.loss, self.usual + max(_SPIKE * self.spread, _LEAST_SPIKE)
        spikes = self.judged >= _BEGINNING and loss > bound
        loss = min(loss, bound) if spikes else loss  # a new level is soon usual if it lasts, and not at once
        new = 1 / (self.judged + 1) if self.judged < _BEGINNING else 1 - _MEMORY
        usual = self.usual + new * (loss - self.usual)
        changes = {
            "in_a_row": 0,
            "failing": (),
            "judged": self.judged + 1,
            "usual": usual,
            "spread": self.spread + new * (abs(loss - usual) - self.spread),
            "leaping": spikes,
            "lowest": self.lowest if self.judged < _BEGINNING else min(usual, self.lowest or usual),
        }
        message = (
            f"{examined}: loss spike: {examined.loss:.3f} nats per target token, where {self.usual:.3f} is "
            f"usual; the gradient's norm is {examined.gradient_norm:.3g}. Harmless where the loss "
            f"falls again; else the learning rate is too high"
        )
        return self.model_copy(update=changes), message if spikes and not self.leaping else None
