"""The verb ``doctor``."""

import typer

from transduce.cli.options import CarryVocabulary, Init, Out, RunFile, Settings, Threads, use_threads


def doctor(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    init: Init = None,
    carry_vocabulary: CarryVocabulary = False,
    threads: Threads = None,
) -> None:
    """Say what will go wrong with a training, before it does, and how long it will take; writes nothing."""
    from transduce.workflows.doctor import examine
    from transduce.workflows.initialize import read_training
    from transduce.workflows.run_directory import RunDirectory, default_out

    use_threads(threads)
    problems, run = 0, RunDirectory(out or default_out(run_file))
    config = read_training(run_file, settings or (), run, resume=True, init=init, carry_vocabulary=carry_vocabulary)
    for finding in examine(config, run, init, carry_vocabulary=carry_vocabulary):
        problems += finding.kind == "problem"
        typer.echo(f"{finding.kind}: {finding.text}")
    if problems:
        raise typer.Exit(1)
