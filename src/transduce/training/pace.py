"""How fast a training goes, and so how long it still takes, and whether the clock lets it come to its end."""

from dataclasses import dataclass
from typing import Final, final

from transduce.config import TrainConfig

_SURE: Final = 0.05  # of all its time, after which the speed is known well enough ...
_SURE_SECONDS: Final = 60.0  # ... or so much of it
_VARIES: Final = 0.05  # of the steps: so near to the end, a speed says nothing


@final
@dataclass(frozen=True)
class Pace:
    """Where this sitting of a training began: its step, and seconds of training without validation."""

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

    def cut_short(self, config: TrainConfig, step: int, seconds: float) -> str | None:
        """What to say of a cooldown that ``max_minutes`` does not let come to its end, if that is so."""
        if config.max_minutes is None or not config.cooldown_steps or step <= self.step or seconds <= self.seconds:
            return None
        speed = (step - self.step) / (seconds - self.seconds)
        last = round(step + speed * max(0.0, 60 * config.max_minutes - seconds))
        if last >= (1 - _VARIES) * config.max_steps:
            return None
        before = last <= config.max_steps - config.cooldown_steps
        return (
            f"at this speed train.max_minutes = {config.max_minutes:g} ends the training at about step {last:,}, "
            f"{'before the cooldown begins' if before else 'within the cooldown'}, the last "
            f"{config.cooldown_steps:,} of train.max_steps = {config.max_steps:,}: the learning rate will not fall to "
            f"nothing. Raise train.max_minutes, or stop and --resume with fewer train.max_steps (about "
            f"{max(step, round((1 - 2 * _VARIES) * last)):,})"
        )


def describe_time(seconds: float) -> str:
    """For people: ``1 h 05 min``, ``12 min``, ``40 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
