"""The learning rate (section 5.3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, factor: float) -> float:
    """Factor d_model^(-1/2) min(step^(-1/2), step warmup_steps^(-3/2)); steps are optimizer steps, counted from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def constant_rate(step: int, rate: float, warmup_steps: int) -> float:
    """In place of section 5.3's: up to ``rate`` in a straight line over the warm-up, and there it stays."""
    return rate * min(1.0, step / warmup_steps)


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """What the rate of a step is multiplied with: 1, then down to 1 / ``cooldown_steps`` at the last step.

    No part of the paper: it lets a training of few steps settle, as a longer one does by its ever smaller rate.
    """
    if not cooldown_steps:
        return 1.0
    return min(1.0, (max_steps - step + 1) / cooldown_steps)
