"""Measuring dev on the way, and keeping the best model."""

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain

import torch

from transduce.config import METRICS, BadInputError
from transduce.config.metrics import perplexity
from transduce.data import plan_epoch, read_batches
from transduce.models import TrainableModel
from transduce.training.checkpoint import average_weights, list_regular, read_weights
from transduce.training.progress import Progress
from transduce.training.session import Sums, Training, describe
from transduce.training.step import compute_loss

_log = logging.getLogger(__name__)


def validate(training: Training, progress: Progress, rate: float) -> Progress:
    """Measure dev, and keep the model where it is the best so far; where that is abandoned, nothing is reported."""
    key = training.config.best_metric
    best_score = progress.best_score if progress.best_metric == key else None  # of another metric, it says nothing
    improved = False
    measured = []
    for model, count in _candidates(training, progress.step):
        sums = dev_losses(training, model)
        loss = sums.mean()
        outputs = training.hooks.translate_dev(model)
        score = METRICS[key].rank({"loss": loss, "perplexity": perplexity(loss), **outputs.scores}[key])
        # A loss that is NaN is never the best, and never stands in the way of a better one.
        best = not math.isnan(score) and (best_score is None or score > best_score)
        improved |= best
        if best and _save_best(training, model):
            best_score = score
            progress = progress.model_copy(update={"best_score": score, "best_step": progress.step, "best_metric": key})
        line = describe("dev", progress, loss, rate) | sums.own_figures() | dict(outputs.scores)
        line |= {"average": count} if count > 1 else {}
        line |= {"samples": [asdict(each) for each in outputs.samples]} if outputs.samples else {}
        measured.append((line, best))
    for line, best in measured:
        training.report.dev(line, best=best)
    return progress.model_copy(update={"stale": 0 if improved else progress.stale + 1})


def _save_best(training: Training, model: TrainableModel) -> bool:
    """Whether it is on disk. Where it is not, the next model that is better than the one that is there is tried."""
    try:
        training.hooks.check_place()
        training.hooks.save_best(model)
    except OSError as error:
        _log.warning(
            f"{error.filename or 'best'}: the best model could not be written: {error.strerror or error}; the older "
            f"one stays, the training goes on"
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
