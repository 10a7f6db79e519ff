"""The learning rate (section 5.3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, factor: float) -> float:
    """Factor d_model^(-1/2) min(step^(-1/2), step warmup_steps^(-3/2)); steps are optimizer steps, counted from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
