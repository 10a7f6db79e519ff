"""What the batches of a training were like: enough to count its operations afterwards."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from transduce.data import Batch
from transduce.training.processes import Processes


class Work(BaseModel):
    """Sums over all pairs, of s source and t target symbols each; padding is never counted.

    The matrix products that pairs ask for are a polynomial of s and t with these terms.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = 0  # fewer than the training's, where an older version began it: the last so many
    pairs: int = 0  # 0 where an older version began it: of its models none had costs of this kind
    source: int = 0  # s
    target: int = 0  # t, end symbols counted
    source_source: int = 0  # s s
    source_target: int = 0  # s t
    target_target: int = 0  # t t

    @model_validator(mode="before")
    @classmethod
    def _begin_anew(cls, value: Any) -> Any:  # noqa: ANN401 - whatever a file holds
        """An older version counted padding, and labels beside it: its sums mean something else."""
        return {} if isinstance(value, dict) and "labels" in value else value

    def __add__(self, other: "Work") -> "Work":
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in Work.model_fields})

    @property
    def terms(self) -> tuple[int, ...]:
        """What the operations of the pairs grow with."""
        squares = self.source_source, self.source_target, self.target_target
        return self.source, self.target, *squares, self.pairs


def pair_work(source: int, target: int, pairs: int = 1) -> Work:
    """The work of pairs of one length, beside the steps."""
    return Work(
        pairs=pairs,
        source=pairs * source,
        target=pairs * target,
        source_source=pairs * source * source,
        source_target=pairs * source * target,
        target_target=pairs * target * target,
    )


def step_work(batches: Iterable[Batch]) -> Work:
    """The work of one step, which learns from all of these batches, but from no pair of weight 0."""
    total = Work(steps=1)
    for batch in batches:
        counted = batch.counted
        lengths = (each.astype(np.int64) for each in (batch.source_lengths, batch.target_lengths))
        source, target = (each[counted > 0] for each in lengths)
        total += Work(
            pairs=len(source),
            source=source.sum(),
            target=counted.astype(np.int64).sum(),
            source_source=source @ source,
            source_target=source @ target,
            target_target=target @ target,
        )
    return total


def join_work(own: Work, processes: Processes) -> Work:
    """The work of a step that several processes share, from each one's own."""
    terms = [name for name in Work.model_fields if name != "steps"]
    sums = processes.sum([getattr(own, name) for name in terms])
    return Work(steps=own.steps, **{name: int(total) for name, total in zip(terms, sums, strict=True)})
