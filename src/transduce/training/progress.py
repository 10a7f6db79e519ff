"""How far a training has come: all that resuming takes beside weights and optimizer; how fast it goes, and its end."""

from dataclasses import dataclass
from typing import Any, Final, final

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from transduce.config import MetricKey, TrainConfig
from transduce.data import Position
from transduce.training.health import Health
from transduce.training.work import Work


class Progress(BaseModel):
    """Counted since the training began, over all resumes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: dict[str, Any] = {}  # what the training began with and must go on with, by its key in the run file
    step: int = 0
    epoch: int = 0
    window: int = 0  # of this epoch's plan
    batch: int = 0  # of this window that are done
    target_tokens: int = 0  # end symbols counted, padding not
    seconds: float = 0.0  # of training, without validation
    work: Work = Work()  # what the batches were like
    best_score: float | None = None  # of best_metric; more is better: where less is, it is negated
    best_step: int | None = None
    best_metric: MetricKey | None = None
    best_loss: float | None = None  # of dev, with the best score: of equal scores, the lower one is the better
    stale: int = 0  # validations since the best
    checkpoint_seconds: float = 0.0  # of training at the last checkpoint
    asked: bool = False  # the checkpoint is no regular one: never averaged, and gone with the next
    unvalidated: bool = False  # the training was stopped before dev was measured at this step, as it should have been
    validated: int | None = None  # the last step at which dev was measured
    health: Health = Health()
    # A batch goes through the model in so many, as memory was too small for more at once; ``cuts`` in old checkpoints.
    micro_batches: int = Field(default=1, validation_alias=AliasChoices("micro_batches", "cuts"))
    circumstances: dict[str, str] = {}  # what the last bits of a sum depend on, by its name
    init: str | None = None  # the finished model whose weights it began with
    stream: Position | None = None  # of a training that streams: where the window begins

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A training from a store says nothing of a stream."""
        values: dict[str, Any] = handler(self)
        return values if self.stream is not None else {key: values[key] for key in values if key != "stream"}

    @model_validator(mode="before")
    @classmethod
    def _tell_metric(cls, values: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        """Older checkpoints do not say what their best score is of: a loss, which is negated, or BLEU."""
        if not isinstance(values, dict) or values.get("best_score") is None or "best_metric" in values:
            return values
        return {**values, "best_metric": "loss" if values["best_score"] < 0 else "bleu"}


_SURE: Final = 0.05  # of all its time, after which the speed is known well enough ...
_SURE_SECONDS: Final = 60.0  # ... or so much of it
_VARIES: Final = 0.05  # of the steps: so near to the end, a speed says nothing


@final
@dataclass(frozen=True)
class Pace:
    """Where this session of a training began: its step, and seconds of training without validation."""

    step: int
    seconds: float

    def left(self, config: TrainConfig, step: int, seconds: float) -> float | None:
        """Seconds of training that are left at this speed, by steps or by the clock; None before the first step."""
        if step <= self.step:
            return None
        by_steps = (config.max_steps - step) * (seconds - self.seconds) / (step - self.step)
        return max(0.0, by_steps if config.max_minutes is None else min(by_steps, 60 * config.max_minutes - seconds))

    def is_known(self, config: TrainConfig, seconds: float) -> bool:
        """Whether the clock can be told by this speed where it will end the training."""
        if config.max_minutes is None:
            return False
        return seconds - self.seconds >= min(_SURE_SECONDS, _SURE * 60 * config.max_minutes)

    def last_step(self, config: TrainConfig, step: int, seconds: float) -> int | None:
        """About where the clock ends the training at this speed; None where its steps are over before, or unknown."""
        if config.max_minutes is None or step <= self.step or seconds <= self.seconds:
            return None
        speed = (step - self.step) / (seconds - self.seconds)
        last = round(step + speed * max(0.0, 60 * config.max_minutes - seconds))
        return None if last >= (1 - _VARIES) * config.max_steps else last

    def cut_short(self, config: TrainConfig, step: int, seconds: float) -> str | None:
        """What to say where ``max_minutes`` ends a training within its warm-up, or before its cooldown is over."""
        if (last := self.last_step(config, step, seconds)) is None:
            return None
        ends = f"at this speed train.max_minutes = {config.max_minutes:g} ends the training at about step {last:,}"
        if last < config.warmup_steps:
            return (
                f"{ends}, within the warm-up of train.warmup_steps = {config.warmup_steps:,}: the learning rate will "
                f"not have come to its peak. {_advise_warmup(last)}"
            )
        if not config.cooldown_steps:
            return None
        before = last <= config.max_steps - config.cooldown_steps
        return (
            f"{ends}, {'before the cooldown begins' if before else 'within the cooldown'}, the last "
            f"{config.cooldown_steps:,} of train.max_steps = {config.max_steps:,}: the learning rate will not fall to "
            f"nothing. Raise train.max_minutes, or stop and --resume with fewer train.max_steps (about "
            f"{max(step, round((1 - 2 * _VARIES) * last)):,})"
        )


def ended_within_warmup(config: TrainConfig, progress: Progress) -> str | None:
    """What to say of a training that the clock has ended before its learning rate came to its peak, if that is so."""
    step = progress.step
    if step >= min(config.warmup_steps, config.max_steps) or not is_over(config, step, progress.seconds):
        return None
    return (
        f"ended within the warm-up, at step {step:,} of train.warmup_steps = {config.warmup_steps:,}: the learning "
        f"rate was still rising, and the model has hardly begun to learn. {_advise_warmup(step)}"
    )


def _advise_warmup(steps: int) -> str:
    return (
        f"Raise train.max_minutes (--resume goes on), or begin anew with fewer train.warmup_steps (a tenth of the "
        f"steps is usual: {max(1, steps // 10):,})"
    )


def is_over(config: TrainConfig, step: int, seconds: float) -> bool:
    """Whether a training has had its steps or its time."""
    return step >= config.max_steps or (config.max_minutes is not None and seconds >= 60 * config.max_minutes)


def is_stale(config: TrainConfig, progress: Progress) -> bool:
    """Whether dev has not become better for as long as the settings allow."""
    return config.early_stop is not None and progress.stale >= config.early_stop


def is_read(progress: Progress) -> bool:
    """Whether the training corpora had no step more."""
    return progress.stream is not None and progress.stream.ended


def why_finished(config: TrainConfig, progress: Progress) -> str | None:
    """Which setting ended a training, in words; None where it is not finished."""
    if not is_finished(config, progress):
        return None
    if progress.step >= config.max_steps:
        return f"train.max_steps = {config.max_steps:,}"
    if is_over(config, progress.step, progress.seconds):
        return f"train.max_minutes = {config.max_minutes:g}"
    if is_read(progress):
        return "data.at_end: all of the training corpora is read"
    since = "" if progress.best_step is None else f" since step {progress.best_step:,}"
    return f"train.early_stop = {config.early_stop}: so many validations{since} were not better"


def is_finished(config: TrainConfig, progress: Progress) -> bool:
    """Whether there is nothing left to do."""
    over = is_over(config, progress.step, progress.seconds) or is_stale(config, progress) or is_read(progress)
    return over and not progress.unvalidated
