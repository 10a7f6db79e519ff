"""How often a training goes through its text, and whether anybody would want that."""

from typing import Final

from transduce.config import TrainConfig
from transduce.workflows.finding import Finding

# The paper's base goes through its text some twenty times; published trainings on small corpora, and the recipes here,
# at most about a hundred times. Three times that is still a choice. Far beyond, defaults (train.max_steps is the
# paper's, for 4.5 million pairs) have met a small corpus.
_MANY: Final = 300
_ENOUGH: Final = 100


def judge_epochs(train: TrainConfig, steps: float, pairs: str) -> Finding:
    """Whether ``max_steps`` is sensible where an epoch of these pairs takes so many steps."""
    epochs = train.max_steps / steps
    if epochs < _MANY:
        return Finding("ok", f"{pairs}: {epochs:.1f} epochs of them")
    text = f"{pairs}: {epochs:,.0f} epochs of them in train.max_steps = {train.max_steps:,}"
    if train.early_stop is not None or train.max_minutes is not None:
        limit = "train.early_stop" if train.early_stop is not None else "train.max_minutes"
        return Finding("ok", f"{text}, if {limit} does not end it before")
    enough = _round(_ENOUGH * steps)
    return Finding(
        "warning",
        f"{text}: long before, a model knows them by heart and gets no better; train.max_steps = {enough:,} are "
        f"{_ENOUGH} epochs, which is plenty (with train.warmup_steps = {max(1, enough // 10):,}), and train.early_stop "
        f"= 5 ends a training that no longer gets better on dev",
    )


def _round(number: float) -> int:
    """To two digits that say something."""
    whole = max(1, round(number))
    return round(whole, min(0, 2 - len(str(whole))))
