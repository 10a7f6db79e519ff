"""The verb ``demo``."""

from pathlib import Path

import typer

from transduce.cli.options import Out


def demo(out: Out = None) -> None:
    """Run the whole path on a built-in task, in minutes, without downloads."""
    from transduce.workflows.demo import demo as run_demo
    from transduce.workflows.run_directory import RunDirectory

    run_demo(RunDirectory(out or Path("runs/demo")), typer.echo, own_process=True)
