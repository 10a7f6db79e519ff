"""The verb ``demo``."""

from pathlib import Path

import typer

from transduce.cli.options import Out


def demo(out: Out = None) -> None:
    """Run the whole path on a built-in task, in minutes, without downloads."""
    import shutil

    from transduce.workflows.demo import demo as run_demo
    from transduce.workflows.run_directory import RunDirectory

    root = out or Path("runs/demo")
    if out is None:
        shutil.rmtree(root, ignore_errors=True)  # its own folder, which it fills anew each time
    run_demo(RunDirectory(root), typer.echo)
