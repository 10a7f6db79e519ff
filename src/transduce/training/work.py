"""What the batches of a training were like: enough to count its operations afterwards."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from transduce.data import Batch


class Work(BaseModel):
    """Sums over all batches, of b pairs padded to s source and t target symbols each.

    The matrix products of a batch are a polynomial of b, s and t with these terms, but for the projection's, which
    leave padding out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = 0  # fewer than the training's, where an older version began it: the last so many
    labels: int = 0  # target symbols, padding not counted
    source: int = 0  # b s
    target: int = 0  # b t
    source_source: int = 0  # b s s
    source_target: int = 0  # b s t
    target_target: int = 0  # b t t

    def __add__(self, other: "Work") -> "Work":
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in Work.model_fields})

    @property
    def terms(self) -> tuple[int, ...]:
        """What depends on the shapes of the batches."""
        return self.source, self.target, self.source_source, self.source_target, self.target_target


def padded(pairs: int, source: int, target: int) -> Work:
    """The work of one batch by its shape alone: no step, and no labels."""
    return Work(
        source=pairs * source,
        target=pairs * target,
        source_source=pairs * source * source,
        source_target=pairs * source * target,
        target_target=pairs * target * target,
    )


def step_work(batches: Iterable[Batch]) -> Work:
    """The work of one step, which learns from all of these batches."""
    total = Work(steps=1)
    for batch in batches:
        pairs, source = batch.source.shape
        total += padded(pairs, source, batch.target.shape[1]) + Work(labels=batch.target_tokens)
    return total
