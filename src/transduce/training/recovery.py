"""When gradients fail again and again: back to where they were finite, and on without the batches that they fail on."""

import logging
from typing import Final

from transduce.config import BadInputError, TransduceError
from transduce.training.checkpoint import list_checkpoints, load_newest, remove_newer
from transduce.training.progress import Progress
from transduce.training.session import Training
from transduce.training.writer import CheckpointWriter

_log = logging.getLogger(__name__)

_REMEDY: Final = "lower train.learning_rate or train.learning_rate_factor, or raise train.warmup_steps"
# What a training that goes on may not change.
_ANEW: Final = 'train.precision = "float32" or another train.seed'
# The best model is still the one that was written, whatever step it is of.
_KEPT: Final = ("micro_batches", "best_score", "best_step", "best_metric", "best_loss", "unvalidated")


def go_back(training: Training, progress: Progress, writer: CheckpointWriter) -> Progress:
    """Take the training back to where its gradients were finite, to go on without the batches that it fails on.

    Raises:
        TransduceError: There is no way back, or it was gone several times.
    """
    what = f"the gradients of {progress.health.in_a_row} steps in a row, to step {progress.step}, are infinite or NaN"
    writer.wait()
    try:
        then = load_newest(training.checkpoints, training.model, training.optimizer, training.processes, finite=True)
    except BadInputError as error:
        # What was written amid failing steps may hold weights that no setting mends.
        how = "train anew with another --out: " if list_checkpoints(training.checkpoints) else ""
        raise TransduceError(
            f"{what}, and there is no checkpoint to go back to ({error}): {how}{_REMEDY}, or train with {_ANEW}"
        ) from error
    if progress.health.is_hopeless(then.step):
        raise TransduceError(
            f"{what}, though the training went back to step {then.step}: {_REMEDY}, and --resume; where that fails "
            f"too, train anew with another --out, or with {_ANEW}"
        )
    health = progress.health.go_back(then.health, then.step)
    if training.processes.first:
        left_out = ", ".join(map(str, progress.health.failing))
        _log.warning(f"{what}: going back to step {then.step}, and on without {left_out}")
        remove_newer(training.checkpoints, then.step)
    training.report.go_back(then.step)
    kept = {name: getattr(progress, name) for name in _KEPT}
    # What was measured on the course that is left is measured again, and counts once.
    stale = then.stale if progress.best_step == then.best_step else 0
    progress = then.model_copy(update={"health": health, "stale": stale} | kept)
    writer.write(progress)  # so that a crash from now on does not lead there again
    return progress
