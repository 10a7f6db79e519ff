"""Measuring dev on the way, and keeping the best model."""

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain

import numpy as np
import torch

from transduce.config import METRICS, BadInputError
from transduce.config.errors import remedy
from transduce.config.metrics import perplexity
from transduce.data import Store, plan_epoch, read_batches
from transduce.models import TrainableModel
from transduce.training.checkpoint import average_weights, list_regular, read_weights
from transduce.training.progress import Progress
from transduce.training.session import Sums, Training, describe
from transduce.training.step import compute_loss

_log = logging.getLogger(__name__)


def validate(training: Training, progress: Progress, rate: float) -> Progress:
    """Measure dev, and keep the model where it is the best so far; where that is abandoned, nothing is reported."""
    key = training.config.best_metric
    known = progress.best_metric == key  # of another metric, the best score says nothing
    best_score, best_loss = (progress.best_score, progress.best_loss) if known else (None, None)
    improved = False
    measured = []
    for model, count in _candidates(training, progress.step):
        sums = dev_losses(training, model)
        loss = sums.mean()
        outputs = training.hooks.translate_dev(model)
        score = METRICS[key].rank({"loss": loss, "perplexity": perplexity(loss), **outputs.scores}[key])
        best = _is_better(score, loss, best_score, best_loss)
        improved |= best
        if best and _save_best(training, model, progress):
            best_score, best_loss = score, loss if math.isfinite(loss) else None
            changes = {"best_score": score, "best_step": progress.step, "best_metric": key, "best_loss": best_loss}
            progress = progress.model_copy(update=changes)
        line = describe("dev", progress, loss, rate) | sums.own_figures() | dict(outputs.scores)
        line |= {"average": count} if count > 1 else {}
        line |= {"samples": [asdict(each) for each in outputs.samples]} if outputs.samples else {}
        measured.append((line, best))
    for line, best in measured:
        training.report.dev(line, best=best)
    return progress.model_copy(update={"stale": 0 if improved else progress.stale + 1})


def _is_better(score: float, loss: float, best_score: float | None, best_loss: float | None) -> bool:
    """Whether a model is better than the best so far: by its score or, where that is the same, by dev's loss.

    A score that is NaN is never the best, and never stands in the way of a better one. A metric of outputs may be 0 for
    a long time, in which a model learns all the same. Older checkpoints do not know the loss of their best.
    """
    if best_score is None:
        return not math.isnan(score)
    return score > best_score or (score == best_score and loss < (math.inf if best_loss is None else best_loss))


def _save_best(training: Training, model: TrainableModel, progress: Progress) -> bool:
    """Whether it is on disk. Where it is not, the next model that is better than the one that is there is tried."""
    try:
        training.hooks.check_place()
        training.hooks.save_best(model)
    except OSError as error:
        older = "there is none yet" if progress.best_score is None else "the older one stays"
        advice = f" ({what})" if (what := remedy(error)) else ""
        _log.warning(
            f"{error.filename or 'best'}: the best model could not be written: {error.strerror or error}{advice}; "
            f"{older}, the training goes on"
        )
        return False
    return True


@torch.no_grad()
def dev_losses(training: Training, model: TrainableModel) -> Sums:
    """The losses of dev, without label smoothing."""
    model.eval()
    dev = training.corpora.dev
    # Dev is measured whole: a pair longer than the training's budget gets a batch of its own.
    budget = max(training.config.batch_tokens, max(dev.longest) + 1)
    sums = Sums.zero(training.device)
    for batch in read_batches(dev, plan_epoch(dev, budget, 0, 0), training.corpora.special):
        sums = sums.add(compute_loss(model, batch, training.dtype), batch.target_tokens)
    return sums


def describe_shortage(dev: Store, error: BaseException) -> str:
    """What to say where memory is too small to measure dev."""
    row = int(np.argmax(dev.sizes(np.arange(len(dev)))))
    source, target = map(len, dev.pair(row))
    return (
        f"memory is too small to measure dev ({error or type(error).__name__}): of its {len(dev):,} pairs the longest "
        f"is number {row + 1:,}, of {source:,} source and {target:,} target tokens"
    )


def _candidates(training: Training, step: int) -> Iterator[tuple[TrainableModel, int]]:
    """The model as it is, then its mean with the newest checkpoints, where there are enough; and how many are in it."""
    yield training.model, 1
    count = training.config.average_last
    if count == 1:
        return
    older = [path for number, path in list_regular(training.checkpoints) if number < step][1 - count :]
    if len(older) < count - 1:
        return
    current = {name: tensor.cpu() for name, tensor in training.model.state_dict().items()}
    try:
        mean = average_weights(chain([current], map(read_weights, older)))
    except BadInputError as error:
        _log.warning(f"{error}: no mean of {count} checkpoints is tried")
        return
    averaged = copy.deepcopy(training.model)
    averaged.load_state_dict(mean)
    yield averaged, count
