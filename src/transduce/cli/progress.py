"""A bar of what is done, on standard error where a person looks at it and nothing else is shown."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOG: Final = logging.getLogger("transduce")


@contextmanager
def line_bar(
    count: Callable[[], int | None], *, beside_terminal: bool, unit: str = "lines"
) -> Iterator[Callable[[], None]]:
    """Show a bar, and give the function that moves it by a line, or by one of another ``unit``.

    There is none where standard error is no terminal, where the log is not shown, or ``beside_terminal``: where lines
    that a person types or reads run through the same terminal.

    Args:
        count: How many lines there will be, where that can be known; only called where there is a bar.
        beside_terminal: Whether input or output is a terminal.
        unit: What is counted, for people.
    """
    if beside_terminal or sys.stderr is None or not sys.stderr.isatty() or not _LOG.isEnabledFor(logging.INFO):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [MofNCompleteColumn(), BarColumn(), TextColumn(unit), TimeRemainingColumn()]
    # Results go past it: what stands on standard output is not the bar's to draw around.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(unit, total=count())
        yield lambda: bar.advance(task)
