"""The verb ``average``."""

from pathlib import Path
from typing import Annotated

import typer


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    last: Annotated[int, typer.Option(metavar="N", help="How many of the newest checkpoints; 1 makes a model of one.")],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="A new model directory.")],
) -> None:
    """Write the mean of a run's newest checkpoints as a model."""
    from transduce.workflows.average import average as average_run
    from transduce.workflows.run_directory import RunDirectory

    steps = average_run(RunDirectory(run), last, out)
    typer.echo(f"{out}: the mean of steps {', '.join(map(str, steps))}")
