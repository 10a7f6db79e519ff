"""The verb ``report``."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory; its training may be under way.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="F.html", dir_okay=False, help="The page. [default: RUN/report.html]"),
    ] = None,
) -> None:
    """Write one page about a training: its curves, what was skipped, and how outputs of dev changed."""
    from transduce.workflows.report import view_training
    from transduce.workflows.run_directory import RunDirectory

    page = view_training(RunDirectory(run))
    out = out or run / "report.html"
    page.save(out)
    typer.echo(out)
