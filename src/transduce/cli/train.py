"""The verb ``train``."""

from typing import Annotated

import typer

from transduce.cli.log import keep_to_warnings
from transduce.cli.options import CarryVocabulary, Init, Out, RunFile, Settings, Threads, use_threads


def train(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    init: Init = None,
    carry_vocabulary: CarryVocabulary = False,
    threads: Threads = None,
) -> None:
    """Train a model; prepares the data first, where needed."""
    from transduce.config import METRICS
    from transduce.training import join_processes
    from transduce.workflows.initialize import read_training
    from transduce.workflows.run_directory import RunDirectory, default_out
    from transduce.workflows.train import train_run
    from transduce.workflows.trained import summarize

    use_threads(threads)
    run = RunDirectory(out or default_out(run_file))
    config = read_training(run_file, settings or (), run, resume=resume, init=init, carry_vocabulary=carry_vocabulary)
    with join_processes(config.train.hang_minutes) as processes:
        if not processes.first:
            keep_to_warnings()
        progress = train_run(
            config,
            run,
            resume=resume,
            init=init,
            carry_vocabulary=carry_vocabulary,
            processes=processes,
            own_process=True,
        )
    if not processes.first:
        return
    trained = summarize(run, progress)
    best = "nothing was validated yet"
    if trained.best_score is not None and trained.best_metric is not None:
        metric = METRICS[trained.best_metric]
        best = f"best at step {trained.best_step} (dev {metric.name} {metric.show(trained.best_score)})"
        if trained.best_step == 0:
            best += f": the model that it began with, {trained.init}; nothing became better"
    typer.echo(f"{trained.run}: step {trained.step}, {best}")
