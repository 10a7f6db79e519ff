"""The verb ``doctor``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import Out, RunFile, Settings, Threads, use_threads


def doctor(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    init: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The model that the training would begin with.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Say what will go wrong with a training, before it does, and how long it will take; writes nothing."""
    from transduce.workflows.doctor import examine
    from transduce.workflows.initialize import read_training
    from transduce.workflows.run_directory import RunDirectory, default_out

    use_threads(threads)
    problems, run = 0, RunDirectory(out or default_out(run_file))
    config = read_training(run_file, settings or (), run, resume=True, init=init)
    for finding in examine(config, run, init):
        problems += finding.kind == "problem"
        typer.echo(f"{finding.kind}: {finding.text}")
    if problems:
        raise typer.Exit(1)
