"""The verb ``demo``."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="The run directory.")] = Path("runs/demo"),
) -> None:
    """Run the whole path on a built-in task, in minutes, without downloads."""
    from transduce.workflows.demo import demo as run_demo
    from transduce.workflows.run_directory import RunDirectory

    run_demo(RunDirectory(out), typer.echo, own_process=True)
