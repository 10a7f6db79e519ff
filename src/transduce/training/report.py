"""What a training tells: ``metrics.jsonl`` for programs, a progress bar on standard error for people."""

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@final
class Report:
    """Writes metrics as they come, and shows how it goes.

    On a terminal there is a bar; elsewhere a line for each measurement.
    """

    def __init__(self, path: Path, *, max_steps: int, step: int) -> None:
        """Go on after ``step``: measurements beyond it are of steps that are trained again, and are dropped."""
        _truncate(path, step)
        self._file = path.open("a", encoding="utf-8")
        self._console = Console(stderr=True)
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),  # the figures need the rest of 80 columns
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=max_steps, completed=step, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self._file.close()

    def advance(self, step: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step)

    def train(self, metrics: dict[str, float | int | str], tokens_per_second: float) -> None:
        """A measurement of the last steps."""
        self._write(metrics)
        loss, rate = float(metrics["loss"]), float(metrics["learning_rate"])
        perplexity = math.exp(min(loss, 20))
        self._bar.update(
            self._task,
            note=f"loss {loss:.3f} ppl {perplexity:.4g} {tokens_per_second:,.0f} tok/s rate {rate:.1e}",
        )
        if not self._console.is_terminal:
            self._print(
                f"step {metrics['step']}  loss {loss:.3f}  perplexity {perplexity:.2f}  "
                f"{tokens_per_second:,.0f} tokens/s  rate {rate:.2e}"
            )

    def dev(self, metrics: dict[str, float | int | str], *, best: bool) -> None:
        """A measurement on dev."""
        self._write(metrics)
        bleu = f"  BLEU {metrics['bleu']:.2f}" if "bleu" in metrics else ""
        perplexity = math.exp(min(float(metrics["loss"]), 20))
        mean = f" (mean of {metrics['average']})" if "average" in metrics else ""
        self._print(
            f"step {metrics['step']}{mean}  dev loss {metrics['loss']:.3f}  perplexity {perplexity:.2f}{bleu}"
            + ("  (best so far)" if best else "")
        )

    def say(self, message: str) -> None:
        """A line for people."""
        self._print(message)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _write(self, metrics: dict[str, float | int | str]) -> None:
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()


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
