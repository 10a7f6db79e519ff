"""The verb ``shortlist``."""

from pathlib import Path
from typing import Annotated

import typer


def shortlist(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    size: Annotated[
        int, typer.Option(metavar="N", help="How many of the likeliest translations each source symbol has.")
    ] = 100,
    first: Annotated[
        int, typer.Option(metavar="N", help="How many of the most frequent target symbols every sentence may use.")
    ] = 100,
    pairs: Annotated[
        int, typer.Option(metavar="N", help="Sentence pairs to learn from at most, evenly spread.")
    ] = 200_000,
) -> None:
    """Learn which symbols translations are written with, for translate --shortlist."""
    from transduce.workflows.run_directory import RunDirectory
    from transduce.workflows.shortlist import make_shortlist

    file, covered = make_shortlist(RunDirectory(run), size, first, pairs)
    typer.echo(
        f"{file}: {covered.symbols:,.0f} of {covered.vocabulary:,} symbols a sentence, "
        f"with {covered.share:.2%} of the target symbols of dev"
    )
