"""The verb ``export``."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.options import ModelPath

_log = logging.getLogger(__name__)


def export(
    model: ModelPath,
    to: Annotated[Literal["ctranslate2", "onnx"], typer.Option("--to", help="What will run it.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory.")],
    sentences: Annotated[
        Path | None,
        typer.Option(
            "--sentences",
            metavar="FILE",
            help="Lines to compare both on, which certificate.json tells of. [default: built-in ones]",
        ),
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="Whether to compare what is written with the model.")
    ] = True,
) -> None:
    """Write a model for another runtime, and prove that it computes the same there."""
    from transduce.workflows.export import export_model

    certificate = export_model(model, to, out, sentences, prove=prove)
    _log.info(f"{out}: a model for {to}")
    for line in [] if certificate is None else certificate.describe():
        _log.info(line)
