"""The verb ``prepare``."""

import typer

from transduce.cli.options import Out, RunFile, Settings


def prepare(run_file: RunFile, out: Out = None, settings: Settings = None) -> None:
    """Learn the tokenizer, write the store, and report what was kept and dropped."""
    from transduce.config import read_run
    from transduce.workflows.prepare import prepare as prepare_run
    from transduce.workflows.run_directory import RunDirectory, default_out

    run = RunDirectory(out or default_out(run_file))
    prepared = prepare_run(read_run(run_file, settings or ()), run)
    if not prepared.new:
        typer.echo(f"{run.root}: prepared already, nothing has changed")
    for line in prepared.report:
        typer.echo(line)
