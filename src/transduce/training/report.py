"""What a training tells: ``metrics.jsonl`` for programs, log and progress bar for people, curves for TensorBoard."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from transduce.config import METRICS
from transduce.config.disk import write_whole
from transduce.config.duration import describe_time
from transduce.config.metrics import perplexity
from transduce.training.tracking import Tracking

_log = logging.getLogger(__name__)

_FOREVER: Final = 1e10  # seconds, three centuries: of so many steps, something else is the end


@final
class Report:
    """Writes metrics as they come, and shows how it goes.

    On a terminal there is a bar; elsewhere a line for each measurement. Neither where the log is not shown.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        max_steps: int,
        step: int,
        unvalidated: bool = False,
        tensorboard: Path | None = None,
        listener: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Go on after ``step``: measurements beyond it are of steps that are trained again, and are dropped.

        With ``unvalidated``, dev is to be measured at ``step`` too, and measurements of it there are dropped.
        Without a path nothing is written. ``listener`` hears each measurement.

        Raises:
            TransduceError: A folder for TensorBoard is given, but TensorBoard is not installed.
        """
        self._path, self._folder, self._listener = path, tensorboard, listener
        self._open = ExitStack()
        self._open.callback(self._close_files)
        self._open_files(step, unvalidated)
        console = Console(stderr=True)
        self._has_bar = console.is_terminal and _log.isEnabledFor(logging.INFO)
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),  # the figures need the rest of 80 columns
            TextColumn("{task.fields[note]}"),
            # Not rich's own estimate: that knows no train.max_minutes.
            TextColumn("{task.fields[left]}", style="progress.remaining"),
            console=console,
        )
        self._task = self._bar.add_task("training", total=max_steps, completed=step, note="", left=_clock(None))
        self._left: float | None = None

    def __enter__(self) -> Self:
        if self._has_bar:
            self._open.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def go_back(self, step: int) -> None:
        """Go on after an earlier step: measurements beyond it are dropped."""
        self._close_files()
        self._open_files(step, unvalidated=False)
        self.advance(step)

    def advance(self, step: int, left: float | None = None) -> None:
        """Move the bar; ``left`` are the seconds that the training still takes, where that is known."""
        self._left = left
        self._bar.update(self._task, completed=step, left=_clock(left))

    def train(self, metrics: Mapping[str, Any], tokens_per_second: float) -> None:
        """A measurement of the last steps."""
        self._write(metrics, tokens_per_second)
        rate, short, shown = float(metrics["learning_rate"]), "all skipped", "all steps were skipped"
        if "loss" in metrics:
            loss = float(metrics["loss"])
            short = f"loss {loss:.3f} ppl {perplexity(loss):.4g}"
            shown = f"loss {loss:.3f}  perplexity {METRICS['perplexity'].show(perplexity(loss))}"
        scores = "".join(f"{name} {metrics[name]:.4f}  " for name in ("reward", "risk") if name in metrics)
        self._bar.update(self._task, note=f"{short} {tokens_per_second:,.0f} tok/s rate {rate:.1e}")
        _log.log(
            logging.DEBUG if self._has_bar else logging.INFO,  # the bar says it already
            f"step {metrics['step']}  {scores}{shown}  {tokens_per_second:,.0f} tokens/s  rate {rate:.2e}"
            + _describe_experts(metrics)
            + (f"  {metrics['records']:,} pairs read" if "records" in metrics else "")
            + (f"  {describe_time(self._left)} left" if self._left else ""),
        )

    def dev(self, metrics: Mapping[str, Any], *, best: bool) -> None:
        """A measurement on dev."""
        self._write(metrics)
        mean = f" (mean of {metrics['average']})" if "average" in metrics else ""
        figures = {"perplexity": perplexity(float(metrics["loss"])), **metrics}
        rows = [(METRICS[key], float(figures[key])) for key in METRICS if key in figures]
        # What needs probabilities alone comes first, as in the lines of the training.
        rows.sort(key=lambda row: row[0].needs != "probabilities")
        shown = "  ".join(f"{metric.name} {metric.show(value)}" for metric, value in rows)
        _log.info(f"step {metrics['step']}{mean}  dev {shown}" + ("  (best so far)" if best else ""))

    def flush(self) -> None:
        """See on disk what is measured."""
        if self._file:
            self._file.flush()

    def say(self, message: str) -> None:
        """A line for people."""
        _log.info(message)

    def _open_files(self, step: int, unvalidated: bool) -> None:
        self._tracking: Tracking | None = Tracking(self._folder, step=step) if self._folder else None
        keep = partial(_is_before, step=step, unvalidated=unvalidated)
        self._file: Journal | None = None if self._path is None else Journal(self._path, keep)

    def _close_files(self) -> None:
        # Those that follow may fail to open, and these are not closed again.
        file, self._file, tracking, self._tracking = self._file, None, self._tracking, None
        if file:
            file.close()
        with suppress(OSError):  # after a first error, every call has it
            if tracking:
                tracking.close()

    def _write(self, metrics: Mapping[str, Any], tokens_per_second: float | None = None) -> None:
        if self._file:
            self._file.write(json.dumps(metrics))  # ASCII: no character of a sample ends a line
        try:
            if self._tracking:
                self._tracking.write(metrics, tokens_per_second)
        except OSError as error:
            _log.warning(f"TensorBoard gets no more: {error}")
            self._tracking = None
        if self._listener:
            self._listener(metrics)


def _describe_experts(metrics: Mapping[str, Any]) -> str:
    """Of models with mixtures of experts, how unevenly the layer that is worst at it uses them."""
    busiest = metrics.get("busiest_expert")
    return f"  busiest expert {max(busiest):.2f} x mean" if busiest else ""


def _clock(left: float | None) -> str:
    """Seconds as a clock shows them, where there is little room."""
    return "-:--:--" if left is None or left > _FOREVER else str(timedelta(seconds=round(left)))


def _is_before(line: str, step: int, unvalidated: bool) -> bool:
    """Whether a line of an earlier session is of what is not done again."""
    try:
        entry = json.loads(line)
        again = unvalidated and entry.get("split") == "dev"
        return bool(entry["step"] < step or (entry["step"] == step and not again))
    except (ValueError, KeyError, TypeError):
        return False  # a crash may have cut the last line short


@final
class Journal:
    """Appends lines. What the disk does not take waits in memory, and goes with the next line."""

    def __init__(self, path: Path, keep: Callable[[str], bool]) -> None:
        """Go on behind those lines of an older file that ``keep`` is true of."""
        if path.exists():
            kept = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if keep(line)]
            write_whole(path, "".join(f"{line}\n" for line in kept))
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._waiting = b""
        self._complained = False

    def write(self, line: str) -> None:
        """Append a line, its end not included, for whoever reads along to see at once."""
        self._waiting += f"{line}\n".encode()
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except OSError as error:
            if not self._complained:
                _log.warning(f"{self._path}: cannot be written: {error.strerror}; its lines wait in memory")
        self._complained = bool(self._waiting)

    def flush(self) -> None:
        """See on disk what is written."""
        with suppress(OSError):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Let the file go."""
        if lost := self._waiting.count(b"\n"):
            _log.warning(f"{self._path}: {lost:,} lines could not be written and are lost")
        os.close(self._descriptor)
