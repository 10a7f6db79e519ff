"""Optimizer, schedule, one pure step, the loop around it, and checkpoints."""

from transduce.training.checkpoint import (
    MODEL,
    OPTIMIZER,
    average_weights,
    list_checkpoints,
    list_regular,
    load_checkpoint,
    load_newest,
    read_progress,
    read_weights,
)
from transduce.training.loop import train
from transduce.training.parallel import connect, gather_model, place_model
from transduce.training.process import circumstances, put_back
from transduce.training.processes import Processes, join_processes
from transduce.training.progress import (
    Pace,
    Progress,
    ended_within_warmup,
    is_finished,
    is_over,
    is_stale,
    why_finished,
)
from transduce.training.report import Report
from transduce.training.requests import Abandoned, Requests, listen
from transduce.training.session import Corpora, DevOutputs, Hooks, Sample, Training
from transduce.training.step import (
    compute_loss,
    constant_rate,
    cooldown,
    learning_rate,
    make_optimizer,
    step_seed,
    train_step,
)
from transduce.training.tracking import require_tensorboard
from transduce.training.watch import Watch
from transduce.training.work import Work, pair_work, step_work
from transduce.training.writer import CheckpointWriter, Snapshot, look, save_checkpoint

__all__ = [
    "MODEL",
    "OPTIMIZER",
    "Abandoned",
    "CheckpointWriter",
    "Corpora",
    "DevOutputs",
    "Hooks",
    "Pace",
    "Processes",
    "Progress",
    "Report",
    "Requests",
    "Sample",
    "Snapshot",
    "Training",
    "Watch",
    "Work",
    "average_weights",
    "circumstances",
    "compute_loss",
    "connect",
    "constant_rate",
    "cooldown",
    "ended_within_warmup",
    "gather_model",
    "is_finished",
    "is_over",
    "is_stale",
    "join_processes",
    "learning_rate",
    "list_checkpoints",
    "list_regular",
    "listen",
    "load_checkpoint",
    "load_newest",
    "look",
    "make_optimizer",
    "pair_work",
    "place_model",
    "put_back",
    "read_progress",
    "read_weights",
    "require_tensorboard",
    "save_checkpoint",
    "step_seed",
    "step_work",
    "train",
    "train_step",
    "why_finished",
]
