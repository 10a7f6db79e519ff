"""The verb ``search``."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.options import (
    FILES,
    REQUIRED,
    BeamSize,
    Device,
    LengthPenaltyOption,
    MaxExtraLength,
    MaxLength,
    ModelPath,
    PrecisionOption,
    Threads,
    use_threads,
)
from transduce.config.errors import BadInputError
from transduce.config.files import check_file_place


def search(
    model: ModelPath,
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="What is translated.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="F.html", help="Where it goes.", rich_help_panel=FILES)
    ] = None,
    format_: Annotated[
        Literal["html", "json"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="html: a page to explore; json: the tree as data, on standard output without --out.",
            rich_help_panel=FILES,
        ),
    ] = "html",
    top: Annotated[int, typer.Option(metavar="N", help="Next symbols shown for each hypothesis.")] = 10,
    beam_size: BeamSize = None,
    length_penalty: LengthPenaltyOption = None,
    max_length: MaxLength = None,
    max_extra_length: MaxExtraLength = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="How the output begins: what might come next in it.", rich_help_panel=REQUIRED
        ),
    ] = None,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Show how the search for an output went: what was open in each round, what ended, and what might come next."""
    if out is None and format_ == "html":
        raise BadInputError("nowhere to put it: give --out F.html, or --format json")
    from transduce.config.disk import write_whole
    from transduce.inference import load
    from transduce.viewing import SearchPage

    check_file_place(out)
    use_threads(threads)
    trace = load(model, precision, device).trace_search(
        text,
        beam_size,
        length_penalty,
        top=top,
        prefix=prefix,
        max_length=max_length,
        max_extra_length=max_extra_length,
    )
    if format_ == "html":
        content = SearchPage(trace, f"Search of {model.name}").html()
    else:
        content = json.dumps(trace.to_dict(), ensure_ascii=False) + "\n"
    if out is None:
        typer.echo(content, nl=False)
    else:
        write_whole(out, content)
        typer.echo(out)
