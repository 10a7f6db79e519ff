"""Measuring dev on the way, and keeping the best model."""

import copy
import math
from collections.abc import Iterator

import torch

from transduce.bundle import read_tensors
from transduce.data import plan_epoch, read_batches
from transduce.models import Transformer
from transduce.training.averaging import average_weights
from transduce.training.checkpoint import MODEL, list_checkpoints
from transduce.training.progress import Progress
from transduce.training.session import Sums, Training, describe
from transduce.training.step import compute_loss


def validate(training: Training, progress: Progress, rate: float) -> Progress:
    """Measure dev, and keep the model where it is the best so far."""
    improved = False
    for model, count in _candidates(training):
        loss = dev_loss(training, model)
        bleu = training.hooks.dev_bleu(model)
        score = bleu if training.config.best_metric == "bleu" else -loss
        # A loss that is no number is never the best, and never stands in the way of a better one.
        best = not math.isnan(score) and (progress.best_score is None or score > progress.best_score)
        if best:
            improved = True
            training.hooks.save_best(model)
            progress = progress.model_copy(update={"best_score": score, "best_step": progress.step})
        measured = describe("dev", progress, loss, rate) | {"bleu": bleu}
        training.report.dev(measured | ({"average": count} if count > 1 else {}), best=best)
    return progress.model_copy(update={"stale": 0 if improved else progress.stale + 1})


@torch.no_grad()
def dev_loss(training: Training, model: Transformer) -> float:
    """Nats per target token of dev, without label smoothing."""
    model.eval()
    dev = training.corpora.dev
    # Dev is measured whole: a pair longer than the training's budget gets a batch of its own.
    budget = max(training.config.batch_tokens, max(dev.longest) + 1)
    sums = Sums.zero(training.device)
    for batch in read_batches(dev, plan_epoch(dev, budget, 0, 0), training.corpora.special):
        sums = sums.add(compute_loss(model, batch, training.dtype).nll, batch.target_tokens)
    return sums.mean()


def _candidates(training: Training) -> Iterator[tuple[Transformer, int]]:
    """The model as it is, then its mean with the newest checkpoints, where there are enough; and how many are in it."""
    yield training.model, 1
    count = training.config.average_last
    older = [path for _, path in list_checkpoints(training.checkpoints)[1 - count :]]
    if count == 1 or len(older) < count - 1:
        return
    averaged = copy.deepcopy(training.model)
    weights = (read_tensors(path / MODEL) for path in older)
    current = {name: tensor.cpu() for name, tensor in training.model.state_dict().items()}
    averaged.load_state_dict(average_weights([current, *weights]))
    yield averaged, count
