"""Optimizer, schedule, one pure step, the loop around it, and checkpoints."""

from transduce.training.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from transduce.training.loop import Corpora, Hooks, Training, is_over, train
from transduce.training.progress import Progress
from transduce.training.report import Report
from transduce.training.schedule import learning_rate
from transduce.training.step import compute_loss, make_optimizer, train_step

__all__ = [
    "Corpora",
    "Hooks",
    "Progress",
    "Report",
    "Training",
    "compute_loss",
    "is_over",
    "learning_rate",
    "list_checkpoints",
    "load_checkpoint",
    "make_optimizer",
    "save_checkpoint",
    "train",
    "train_step",
]
