"""Micro-batches: into how many a batch is split so that memory is enough. A step learns the same from them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from transduce.config import TransduceError
from transduce.data import Batch, Share, Stream, make_batch, plan_epoch
from transduce.kernels import give_back_memory, is_out_of_memory
from transduce.training.progress import Progress
from transduce.training.session import Training
from transduce.training.step import compute_loss

_log = logging.getLogger(__name__)

T = TypeVar("T")


def split(batch: Batch, micro_batches: int) -> list[Batch]:
    """The batch in so many micro-batches of about as many pairs, or as many as it has pairs."""
    pairs = len(batch.source)
    return [_part(batch, places) for places in np.array_split(np.arange(pairs), min(micro_batches, pairs))]


def fit(training: Training, progress: Progress, share: Share) -> int:
    """How many micro-batches memory asks for: the widest batches go through the model before any step is taken.

    What will fail fails now, and not after hours. All processes try, and split alike. A model that is sharded over them
    is not tried: if one of them failed, the others would wait for it.

    Raises:
        TransduceError: A single pair needs more memory than there is.
    """
    if not training.processes.alone and training.config.parallel == "sharded":
        return 1
    micro_batches, widest = progress.micro_batches, list(_widest(training, progress, share))
    while True:
        failure = _try(training, widest, micro_batches)
        if not training.processes.sum([failure is not None])[0]:
            return micro_batches
        # One that has memory enough follows those that have too little, however few pairs are its own.
        micro_batches = 2 * micro_batches if failure is None else _split_more(widest, micro_batches, failure)


def within_memory(
    training: Training, take: Callable[[list[Batch]], T], batches: Sequence[Batch], micro_batches: int
) -> tuple[T, int]:
    """What ``take`` makes of the batches, split further where memory is not enough; and into how many.

    Raises:
        TransduceError: Memory is too small for a single pair, or for one of several processes.
    """
    while True:
        try:
            return take([part for batch in batches for part in split(batch, micro_batches)]), micro_batches
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failure = str(error)
        if not training.processes.alone:  # the others wait for its gradients, and cannot be told
            raise TransduceError(f"{training.processes}: out of memory: {failure}: lower train.batch_tokens")
        _tidy(training, failed=True)
        micro_batches = _split_more(batches, micro_batches, failure)


def _part(batch: Batch, places: np.ndarray) -> Batch:
    source_lengths, target_lengths = batch.source_lengths[places], batch.target_lengths[places]
    source, target = int(source_lengths.max()), int(target_lengths.max())
    return replace(
        batch,
        source=batch.source[places, :source],
        source_lengths=source_lengths,
        target=batch.target[places, :target],
        labels=batch.labels[places, :target],
        target_lengths=target_lengths,
        rows=None if batch.rows is None else batch.rows[places],
        weights=None if batch.weights is None else _cut_weights(batch.weights[places], target),
    )


def _cut_weights(weights: np.ndarray, length: int) -> np.ndarray:
    """Those of pairs as they are, those of labels without the columns that no pair has any more."""
    return weights if weights.ndim == 1 else weights[:, :length]


def _widest(training: Training, progress: Progress, share: Share) -> Iterator[Batch]:
    """Of the window of the plan that the training is in: the batch with most symbols, and that with the longest pairs.

    The latter is where attention, which grows with the square of the length, takes most.
    """
    corpora, config = training.corpora, training.config
    if isinstance(corpora.train, Stream):
        yield _fullest(corpora.train.longest, training, share)
        return
    plan = plan_epoch(corpora.train, config.batch_tokens, config.seed, progress.epoch, corpora.weights)
    batches = plan.window(progress.window).batches
    sizes = [corpora.train.sizes(rows).astype(np.int64) for rows in batches]
    for number in dict.fromkeys(int(np.argmax([(each**power).sum() for each in sizes])) for power in (1, 2)):
        yield make_batch(corpora.train, share.part(batches[number], corpora.train.sizes), corpora.special)


def _fullest(longest: int, training: Training, share: Share) -> Batch:
    """Of a stream, whose batches nobody knows: as many pairs of the greatest length as there may be."""
    special = training.corpora.special
    rows = np.arange(max(1, training.config.batch_tokens // longest))
    pairs = len(share.part(rows, lambda rows: np.full(len(rows), 2 * longest))) or 1
    ids, lengths = np.full((pairs, longest), special.unknown), np.full(pairs, longest)
    return Batch(ids, lengths, ids, ids, lengths, rows[:pairs])


def _try(training: Training, batches: Sequence[Batch], micro_batches: int) -> str | None:
    """Go forwards and backwards through batches, and learn nothing; why that cannot be, if memory is too small."""
    weights = [] if training.optimizer.state else list(training.model.parameters())
    failed = True
    try:
        moments = [torch.zeros_like(weight) for weight in (*weights, *weights)]  # as the first step will make
        training.model.train()
        for part in (part for batch in batches for part in split(batch, micro_batches)):
            compute_loss(training.model, part, training.dtype).objective.backward()  # type: ignore[no-untyped-call]
        del moments
        failed = False
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return str(error)
    finally:
        _tidy(training, failed=failed)
    return None


def _tidy(training: Training, *, failed: bool) -> None:
    """Give back what a step has left behind that failed, or was only tried."""
    training.optimizer.zero_grad(set_to_none=True)
    give_back_memory(failed=failed)


def _split_more(batches: Sequence[Batch], micro_batches: int, failure: str) -> int:
    if micro_batches >= max(len(batch.source) for batch in batches):
        raise TransduceError(
            f"a single pair needs more memory than there is ({failure}): lower data.max_length, or take a smaller model"
        )
    _log.warning(
        f"too little memory for a batch in {micro_batches} micro-batches ({failure}): from now on each goes through "
        f"the model in {2 * micro_batches}, of which the gradients are summed: every step learns the same"
    )
    return 2 * micro_batches
