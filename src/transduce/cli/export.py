"""The verb ``export``."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.options import ModelPath

_log = logging.getLogger(__name__)


def export(
    model: ModelPath,
    to: Annotated[Literal["ctranslate2"], typer.Option("--to", help="What will run it.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory.")],
) -> None:
    """Write a model for another runtime."""
    from transduce.workflows.export import export_model

    export_model(model, to, out)
    _log.info(f"{out}: a model for {to}")
