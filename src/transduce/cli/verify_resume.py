"""The verb ``verify-resume``."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from transduce.cli.options import Out, RunFile, Settings


def verify_resume(
    run_file: RunFile,
    out: Out = None,
    settings: Settings = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="How long each half is.")] = 20,
    init: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The model that it begins with, as train's.")
    ] = None,
) -> None:
    """Train 2N steps, and N and N in two processes, and compare every tensor bit for bit.

    The run directory is only read, for its preparation; what is trained is deleted.
    """
    from transduce.workflows.initialize import read_training
    from transduce.workflows.run_directory import RunDirectory, default_out
    from transduce.workflows.verify_resume import verify_resume as verify

    run = RunDirectory(out or default_out(run_file))
    new = RunDirectory(run.root / "new")  # what is trained already has no say
    config = read_training(run_file, settings or (), new, resume=False, init=init)
    run.root.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="verify-resume-", dir=run.root.parent) as folder:
        same = verify(config, run, Path(folder), steps, typer.echo, init)
    if not same:
        raise typer.Exit(1)
