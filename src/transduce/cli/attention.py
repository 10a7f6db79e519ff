"""The verb ``attention``."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from transduce.cli.options import FILES, Device, ModelPath, PrecisionOption, Threads, check_ending, use_threads
from transduce.config.errors import BadInputError
from transduce.config.files import check_file_place

_PICTURE: Final = "The head of a picture (--png, --svg)"


def attention(
    model: ModelPath,
    text: Annotated[
        list[str],
        typer.Option("--text", metavar="TEXT", help="What is read; given several times, sentences stand side by side."),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="TEXT", help="What is written for it. [default: what the model writes]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="F.html", help="A page to explore.", rich_help_panel=FILES)
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="F", help="A picture of one head.", rich_help_panel=FILES)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="F", help="The same as a drawing.", rich_help_panel=FILES)
    ] = None,
    mute: Annotated[
        bool, typer.Option("--mute", help="Translate once more without each head: the page shows what it is for.")
    ] = False,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"],
        typer.Option(
            metavar="KIND", help="encoder, decoder (self-attention) or cross (between them).", rich_help_panel=_PICTURE
        ),
    ] = "cross",
    layer: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="From 1. [default: the last]", rich_help_panel=_PICTURE)
    ] = None,
    head: Annotated[int, typer.Option(metavar="N", min=1, help="From 1.", rich_help_panel=_PICTURE)] = 1,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Show what a model attends to: a page with every kind, layer and head, or a picture of one head."""
    if (out, png, svg) == (None, None, None):
        raise BadInputError("nowhere to put it: give --out F.html, --png F.png or --svg F.svg")
    check_ending("--png", png, ".png")
    check_ending("--svg", svg, ".svg")
    check_file_place(out, png, svg)
    from transduce.config.attention import AttentionHead
    from transduce.viewing import AttentionPage, draw_attention
    from transduce.workflows.attention import view_sentences

    use_threads(threads)
    sentences = view_sentences(model, text, target or None, muting=mute, precision=precision, device=device)
    if out is not None:
        AttentionPage(sentences, f"Attention of {model.name}").save(out)
        typer.echo(out)
    for path in (png, svg):
        if path is not None:
            maps = sentences[0].maps
            layers = 0 if (weights := getattr(maps, kind)) is None else len(weights)
            draw_attention(maps, AttentionHead(kind, layers - 1 if layer is None else layer - 1, head - 1), path)
            typer.echo(path)
