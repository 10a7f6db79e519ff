"""What each step of a training learns from, in order, and where each batch stands in the plan."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import final

from transduce.config import TrainConfig
from transduce.data import Batch, Share, deal, drop_symbols, plan_epoch, read_batches
from transduce.training.health import Place
from transduce.training.progress import Progress
from transduce.training.session import Corpora

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class StepBatches:
    """A step's batches, as far as they are this process's, and where all of the step's stand."""

    batches: list[Batch]
    places: tuple[Place, ...]

    @property
    def position(self) -> dict[str, int]:
        """Where the training stands behind it, as ``Progress`` has it."""
        last = self.places[-1]
        return {"epoch": last.epoch, "window": last.window, "batch": last.batch + 1}


def read_step_batches(corpora: Corpora, config: TrainConfig, progress: Progress, share: Share) -> Iterator[StepBatches]:
    """What each step learns from, without end, from where ``progress`` stands, without what it has excluded."""
    batches = _batches(corpora, config, progress, share)
    while True:
        group = list(islice(batches, config.accumulate))
        yield StepBatches([batch for _, batch in group if batch is not None], tuple(place for place, _ in group))


def _batches(
    corpora: Corpora, config: TrainConfig, progress: Progress, share: Share
) -> Iterator[tuple[Place, Batch | None]]:
    """This process's part of every batch of the plan, None where it is other processes' alone."""
    epoch, window, done, turn = progress.epoch, progress.window, progress.batch, 0
    excluded = set(progress.health.excluded)
    while True:
        plan = plan_epoch(corpora.train, config.batch_tokens, config.seed, epoch, corpora.weights)
        resegment = corpora.resegment(epoch) if corpora.resegment else None
        for index in range(window, plan.windows):
            planned = plan.window(index)
            size = f"{len(planned.batches):,} batches, {100 * planned.padding:.1f}% padding"
            _log.debug(f"epoch {epoch}, window {index + 1} of {plan.windows}: {size}")
            share.check(planned.batches)
            places = [Place(epoch, index, number) for number in range(done, len(planned.batches))]
            places = [place for place in places if place not in excluded]
            own = deal((planned.batches[place.batch] for place in places), share, corpora.train.sizes, turn)
            parts = read_batches(corpora.train, own, corpora.special, resegment)
            for place in places:
                batch = next(parts) if share.takes(turn % share.accumulate) else None
                turn += 1
                if config.symbol_dropout and batch is not None:
                    unknown = corpora.special.unknown
                    batch = drop_symbols(batch, config.symbol_dropout, unknown, (config.seed, epoch))
                yield place, batch
            done = 0
        epoch, window = epoch + 1, 0
