"""The verb ``train``."""

from typing import Annotated

import typer

from transduce.cli.options import Out, RunFile, Settings


def train(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
) -> None:
    """Train a model; prepares the data first, where needed."""
    from transduce.config import read_run
    from transduce.workflows.run_directory import RunDirectory, default_out
    from transduce.workflows.train import train_run

    run = RunDirectory(out or default_out(run_file))
    config = read_run(run_file, settings or ())
    progress = train_run(config, run, resume=resume)
    best = "nothing was validated yet"
    if progress.best_score is not None:
        # Losses are kept negated, so that higher is better.
        score = (
            f"BLEU {progress.best_score:.2f}"
            if config.train.best_metric == "bleu"
            else f"loss {-progress.best_score:.4f}"
        )
        best = f"best at step {progress.best_step} (dev {score})"
    typer.echo(f"{run.root}: step {progress.step}, {best}")
