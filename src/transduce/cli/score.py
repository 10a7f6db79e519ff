"""The verb ``score``."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from transduce.cli.options import ModelPath, PrecisionOption

_LINES_AT_A_TIME: Final = 2048


def score(
    model: ModelPath,
    source: Annotated[Path, typer.Option(metavar="F", help="What would be translated.")],
    target: Annotated[Path, typer.Option(metavar="F", help="What it would become.")],
    precision: PrecisionOption = "float32",
) -> None:
    """Print each target's total log-probability (nats, end symbol counted), a line each."""
    from transduce.data import read_pairs
    from transduce.inference import load

    translator = load(model, precision)
    pairs = read_pairs(source, target)
    number = 1
    while block := list(islice(pairs, _LINES_AT_A_TIME)):
        for value in translator.score([pair[0] for pair in block], [pair[1] for pair in block], first_number=number):
            typer.echo(f"{value:.6f}")
        number += len(block)
