"""The verb ``train``."""

from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.log import keep_to_warnings
from transduce.cli.options import CarryVocabulary, Init, Out, RunFile, Settings, Threads, use_threads

if TYPE_CHECKING:
    from transduce.training import Progress


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
    typer.echo(f"{run.root}: step {progress.step}, {_describe_best(progress)}")


def _describe_best(progress: "Progress") -> str:
    """Which step the best model is of, and how good it is, for people."""
    from transduce.config import METRICS

    if progress.best_score is None or progress.best_metric is None:
        return "nothing was validated yet"
    metric = METRICS[progress.best_metric]
    score = metric.show(metric.rank(progress.best_score))  # a rank's rank is the value again
    best = f"best at step {progress.best_step} (dev {metric.name} {score})"
    if progress.best_step != 0:
        return best
    # A stream may end, or a clock, before there is a step.
    began = "new weights" if progress.init is None else f"the model that it began with, {progress.init}"
    return f"{best}: {began}; nothing became better"
