"""The verb ``prepare``."""

import typer

from transduce.cli.bulk import Address, Engine, Workers, read_cluster
from transduce.cli.options import Out, RunFile, Settings


def prepare(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    engine: Engine = "process",
    address: Address = None,
    workers: Workers = None,
) -> None:
    """Learn the tokenizer, write the store, and report what was kept and dropped."""
    from transduce.config import read_run
    from transduce.workflows.prepare import prepare as prepare_run
    from transduce.workflows.run_directory import RunDirectory, default_out

    run = RunDirectory(out or default_out(run_file))
    cluster = read_cluster(engine, address, workers, None, None if engine == "process" else "cpu")
    prepared = prepare_run(read_run(run_file, settings or ()), run, cluster)
    if not prepared.new:
        typer.echo(f"{run.root}: prepared already, nothing has changed")
    for line in prepared.report:
        typer.echo(line)
