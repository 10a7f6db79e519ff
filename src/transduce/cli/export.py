"""The verb ``export``."""

import logging
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from transduce.cli.options import ComparedSentences, ModelPath, check_compared

_log = logging.getLogger(__name__)
_CARD: Final = "The card of --to safetensors"


def export(
    model: ModelPath,
    to: Annotated[
        Literal["ctranslate2", "marian", "marianmt", "onnx", "safetensors"],
        typer.Option("--to", help="What will run it; safetensors: this program elsewhere, with a model card."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory.")],
    sentences: ComparedSentences = None,
    licence: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The licence that a model card says, such as apache-2.0.", rich_help_panel=_CARD
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Scores that it says: what evaluate --json has printed.", rich_help_panel=_CARD
        ),
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="Whether to compare what is written with the model.")
    ] = True,
) -> None:
    """Write a model for another runtime, and prove that it computes the same there."""
    from transduce.workflows.export import export_model
    from transduce.workflows.model_card import CardOptions

    check_compared(sentences, prove=prove)
    certificate = export_model(model, to, out, sentences, CardOptions(licence, scores), prove=prove)
    _log.info(f"{out}: a model for {to}")
    for line in [] if certificate is None else certificate.describe():
        _log.info(line)
