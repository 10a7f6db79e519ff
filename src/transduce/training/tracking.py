"""What a training tells TensorBoard: the figures of ``metrics.jsonl`` as curves over optimizer steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from transduce.config import METRICS, TransduceError
from transduce.config.metrics import perplexity

_OF_STEPS: Final = ("learning_rate", "gradient_norm", "reward", "risk")  # of a training's lines, beside the metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@final
class Tracking:
    """Writes curves: each metric that was measured (``loss``, ``bleu`` ...), perplexity, and the steps' own."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Go on after ``step``: TensorBoard hides what the folder has of later ones.

        Raises:
            TransduceError: TensorBoard is not installed.
        """
        self._writer = require_tensorboard()(str(folder), purge_step=step + 1)

    def write(self, metrics: Mapping[str, Any], tokens_per_second: float | None = None) -> None:
        """Add one measurement to its curves, for whoever looks on to see at once."""
        split = f"{metrics['split']}_mean_of_{metrics['average']}" if "average" in metrics else metrics["split"]
        figures = {**metrics}
        if "loss" in metrics:  # where all steps were skipped, there is none
            figures.setdefault("perplexity", perplexity(float(metrics["loss"])))
        curves = {f"{key}/{split}": float(figures[key]) for key in METRICS if key in figures}
        if tokens_per_second is not None:
            curves |= {key: float(metrics[key]) for key in _OF_STEPS if key in metrics}
            curves["tokens_per_second"] = tokens_per_second
            if busiest := metrics.get("busiest_expert"):
                curves["busiest_expert"] = max(busiest)
        for tag, value in curves.items():
            self._writer.add_scalar(tag, value, int(metrics["step"]))
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def require_tensorboard() -> "type[SummaryWriter]":
    """The class that writes TensorBoard's files.

    Raises:
        TransduceError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("train.tensorboard: TensorBoard is missing: pip install 'transduce[track]'") from error
    return SummaryWriter
