"""The verb ``train``."""

from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.log import keep_to_warnings
from transduce.cli.options import CarryVocabulary, Init, Out, RunFile, Settings, Threads, use_threads

if TYPE_CHECKING:
    from transduce.workflows.trained import Trained


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
    trained = summarize(run, config.train, progress)
    typer.echo(f"{trained.run}: step {trained.step}, {_describe_best(trained)}")


def _describe_best(trained: "Trained") -> str:
    """Which step the best model is of, and how good it is, for people."""
    from transduce.config import METRICS

    if trained.best_score is None or trained.best_metric is None:
        return "nothing was validated yet"
    metric = METRICS[trained.best_metric]
    best = f"best at step {trained.best_step} (dev {metric.name} {metric.show(trained.best_score)})"
    if trained.best_step != 0:
        return best
    # A stream may end, or a clock, before there is a step.
    began = "new weights" if trained.init is None else f"the model that it began with, {trained.init}"
    return f"{best}: {began}; nothing became better"
