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
    from transduce.config import BadInputError, read_run
    from transduce.workflows.prepare import prepare as prepare_run
    from transduce.workflows.run_directory import RunDirectory, default_out, lock

    run, config = RunDirectory(out or default_out(run_file)), read_run(run_file, settings or ())
    if config.data.streaming:
        raise BadInputError(
            f"{run_file}: data.streaming = true reads the training corpora while it trains, so there is nothing to "
            f"prepare: transduce train {run_file} learns the tokenizer and stores dev by itself; to store the training "
            f"corpora as well, --set data.streaming=false"
        )
    cluster = read_cluster(engine, address, workers, None, None if engine == "process" else "cpu")
    with lock(run):  # a training that has no checkpoint yet would go on with another text than it began with
        prepared = prepare_run(config, run, cluster)
    if not prepared.new:
        typer.echo(f"{run.root}: prepared already, nothing has changed")
    for line in prepared.report:
        typer.echo(line)
