"""The verb ``score``."""

import math
from itertools import repeat
from pathlib import Path
from typing import Annotated, Final

import typer

from transduce.cli.options import FILES, Device, MaxSourceLength, ModelPath, PrecisionOption, Threads, use_threads

_LINES_AT_A_TIME: Final = 2048


def score(
    model: ModelPath,
    source: Annotated[Path, typer.Option(metavar="F", help="Source text, a sentence a line.", rich_help_panel=FILES)],
    target: Annotated[Path, typer.Option(metavar="F", help="Its translation, line by line.", rich_help_panel=FILES)],
    max_source_length: MaxSourceLength = None,
    precision: PrecisionOption = "float32",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Print each target's total log-probability (nats, end symbol counted), a line each.

    A pair that cannot be scored (one side is too long) gives nan, and is named.
    """
    from transduce.data import read_pairs
    from transduce.inference import load
    from transduce.workflows.requests import Failures
    from transduce.workflows.translate import in_groups

    use_threads(threads)
    translator, failures = load(model, precision, device), Failures()
    pairs = in_groups(read_pairs(source, target), repeat(_LINES_AT_A_TIME), lambda pair: sum(map(len, pair)))
    for block in pairs:
        values = translator.score(
            [pair[0] for pair in block],
            [pair[1] for pair in block],
            first_number=failures.lines + 1,
            max_source_length=max_source_length,
            errors="return",
        )
        for value in values:
            typer.echo(f"{value:.6f}")
            failures.count("" if math.isnan(value) else None)
    failures.check("have no score", "nan stands for each")
