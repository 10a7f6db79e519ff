"""The verb ``import``."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.options import ComparedSentences, check_compared

_log = logging.getLogger(__name__)


def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder or file of another library's model.")],
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="A new model directory.")],
    format_: Annotated[
        Literal["marianmt", "marian", "ctranslate2", "fairseq", "opennmt", "eole", "joeynmt", "sockeye", "torch"]
        | None,
        typer.Option("--from", help="Its format. [default: as the files say]"),
    ] = None,
    codes: Annotated[
        Path | None,
        typer.Option(
            "--codes",
            metavar="FILE",
            help="BPE codes or a SentencePiece model, by which words are cut. [default: as in the model's folder]",
        ),
    ] = None,
    sentences: ComparedSentences = None,
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="Whether to compare the model with its own library.")
    ] = True,
) -> None:
    """Make a model directory of another library's model, such as OPUS-MT's, and prove that it computes the same."""
    from transduce.workflows.import_model import import_model

    check_compared(sentences, prove=prove)
    certificate = import_model(path, out, format_, sentences, codes, prove=prove)
    _log.info(f"{out}: a model directory")
    for line in [] if certificate is None else certificate.describe():
        _log.info(line)
