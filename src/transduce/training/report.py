"""What a training tells: ``metrics.jsonl`` for programs, log and progress bar for people, curves for TensorBoard."""

import json
import logging
import math
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transduce.training.tracking import Tracking, perplexity

_log = logging.getLogger(__name__)


@final
class Report:
    """Writes metrics as they come, and shows how it goes.

    On a terminal there is a bar; elsewhere a line for each measurement. Neither where the log is not shown.
    """

    def __init__(self, path: Path | None, *, max_steps: int, step: int, tensorboard: Path | None = None) -> None:
        """Go on after ``step``: measurements beyond it are of steps that are trained again, and are dropped.

        Without a path nothing is written.

        Raises:
            TransduceError: A folder for TensorBoard is given, but TensorBoard is not installed.
        """
        self._open = ExitStack()
        self._tracking = Tracking(tensorboard, step=step) if tensorboard else None
        if self._tracking:
            self._open.callback(self._tracking.close)
        if path is not None:
            _truncate(path, step)
        self._file = None if path is None else self._open.enter_context(path.open("a", encoding="utf-8"))
        console = Console(stderr=True)
        self._has_bar = console.is_terminal and _log.isEnabledFor(logging.INFO)
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),  # the figures need the rest of 80 columns
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("training", total=max_steps, completed=step, note="")

    def __enter__(self) -> Self:
        if self._has_bar:
            self._open.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def advance(self, step: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step)

    def train(self, metrics: dict[str, float | int | str], tokens_per_second: float) -> None:
        """A measurement of the last steps."""
        self._write(metrics, tokens_per_second)
        loss, rate = float(metrics["loss"]), float(metrics["learning_rate"])
        self._bar.update(
            self._task,
            note=f"loss {loss:.3f} ppl {perplexity(loss):.4g} {tokens_per_second:,.0f} tok/s rate {rate:.1e}",
        )
        _log.log(
            logging.DEBUG if self._has_bar else logging.INFO,  # the bar says it already
            f"step {metrics['step']}  loss {loss:.3f}  perplexity {perplexity(loss):.2f}  "
            f"{tokens_per_second:,.0f} tokens/s  rate {rate:.2e}",
        )

    def dev(self, metrics: dict[str, float | int | str], *, best: bool) -> None:
        """A measurement on dev."""
        self._write(metrics)
        bleu = f"  BLEU {metrics['bleu']:.2f}" if "bleu" in metrics else ""
        mean = f" (mean of {metrics['average']})" if "average" in metrics else ""
        loss = float(metrics["loss"])
        _log.info(
            f"step {metrics['step']}{mean}  dev loss {loss:.3f}  perplexity {perplexity(loss):.2f}{bleu}"
            + ("  (best so far)" if best else "")
        )

    def say(self, message: str) -> None:
        """A line for people."""
        _log.info(message)

    def _write(self, metrics: dict[str, float | int | str], tokens_per_second: float | None = None) -> None:
        if self._file is not None:
            self._file.write(json.dumps(metrics) + "\n")
            self._file.flush()
        if self._tracking:
            self._tracking.write(metrics, tokens_per_second)


def _truncate(path: Path, step: int) -> None:
    if not path.exists():
        return
    # A crash may have cut the last line short: what is no JSON is dropped too.
    kept = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if _step(line) <= step]
    # The last line may lack no more than its line feed.
    shortened = path.with_name(f"{path.name}.unfinished")
    shortened.write_text("".join(line.rstrip("\n") + "\n" for line in kept), encoding="utf-8")
    shortened.replace(path)


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
