"""Optimizer, schedule, one pure step, the loop around it, and checkpoints."""

from transduce.training.averaging import average_weights
from transduce.training.checkpoint import (
    MODEL,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    read_progress,
    save_checkpoint,
)
from transduce.training.loop import is_over, is_stale, train
from transduce.training.memory import keep_freed_memory
from transduce.training.progress import Progress
from transduce.training.report import Report
from transduce.training.schedule import cooldown, learning_rate
from transduce.training.session import Corpora, Hooks, Training
from transduce.training.step import compute_loss, make_optimizer, step_seed, train_step
from transduce.training.tracking import require_tensorboard
from transduce.training.work import Work, pair_work, step_work

__all__ = [
    "MODEL",
    "Corpora",
    "Hooks",
    "Progress",
    "Report",
    "Training",
    "Work",
    "average_weights",
    "compute_loss",
    "cooldown",
    "is_over",
    "is_stale",
    "keep_freed_memory",
    "learning_rate",
    "list_checkpoints",
    "load_checkpoint",
    "load_newest",
    "make_optimizer",
    "pair_work",
    "read_progress",
    "require_tensorboard",
    "save_checkpoint",
    "step_seed",
    "step_work",
    "train",
    "train_step",
]
