"""How far a training has come: everything beside weights and optimizer that going on exactly takes."""

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from transduce.config import MetricKey
from transduce.training.health import Health
from transduce.training.work import Work


class Progress(BaseModel):
    """Counted since the training began, over all resumes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: dict[str, Any] = {}  # what the training began with and must go on with, by its key in the run file
    step: int = 0
    epoch: int = 0
    window: int = 0  # of this epoch's plan
    batch: int = 0  # of this window that are done
    target_tokens: int = 0  # end symbols counted, padding not
    seconds: float = 0.0  # of training, without validation
    work: Work = Work()  # what the batches were like
    best_score: float | None = None  # of best_metric; more is better: where less is, it is negated
    best_step: int | None = None
    best_metric: MetricKey | None = None
    stale: int = 0  # validations since the best
    checkpoint_seconds: float = 0.0  # of training at the last checkpoint
    asked: bool = False  # the checkpoint is no regular one: never averaged, and gone with the next
    unvalidated: bool = False  # the training was stopped before dev was measured at this step, as it should have been
    health: Health = Health()
    # A batch goes through the model in so many, as memory was too small for more at once; ``cuts`` in old checkpoints.
    micro_batches: int = Field(default=1, validation_alias=AliasChoices("micro_batches", "cuts"))
    circumstances: dict[str, str] = {}  # what the last bits of a sum depend on, by its name
    init: str | None = None  # the finished model whose weights it began with

    @model_validator(mode="before")
    @classmethod
    def _tell_metric(cls, values: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        """Older checkpoints do not say what their best score is of: a loss, which is negated, or BLEU."""
        if not isinstance(values, dict) or values.get("best_score") is None or "best_metric" in values:
            return values
        return {**values, "best_metric": "loss" if values["best_score"] < 0 else "bleu"}
