"""The verb ``doctor``."""

import typer

from transduce.cli.options import Out, RunFile, Settings, Threads, use_threads


def doctor(run_file: RunFile, out: Out = None, settings: Settings = None, threads: Threads = None) -> None:
    """Say what will go wrong with a training, before it does, and how long it will take; writes nothing."""
    from transduce.config import read_run
    from transduce.workflows.doctor import examine
    from transduce.workflows.run_directory import RunDirectory, default_out

    use_threads(threads)
    problems = 0
    for finding in examine(read_run(run_file, settings or ()), RunDirectory(out or default_out(run_file))):
        problems += finding.kind == "problem"
        typer.echo(f"{finding.kind}: {finding.text}")
    if problems:
        raise typer.Exit(1)
