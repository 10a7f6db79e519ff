"""The verb ``attention``."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from transduce.cli.options import (
    FILES,
    Device,
    ModelPath,
    PrecisionOption,
    Threads,
    check_ending,
    check_idle,
    use_threads,
)
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
        Path | None,
        typer.Option("--png", metavar="F", help="A picture of one head, for the first text.", rich_help_panel=FILES),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="F", help="The same as a drawing.", rich_help_panel=FILES)
    ] = None,
    mute: Annotated[
        bool, typer.Option("--mute", help="Translate once more without each head: the page shows what it is for.")
    ] = False,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"] | None,
        typer.Option(
            metavar="KIND",
            help="encoder, decoder (self-attention) or cross (between them). [default: cross]",
            rich_help_panel=_PICTURE,
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="From 1. [default: the last]", rich_help_panel=_PICTURE)
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="From 1. [default: 1]", rich_help_panel=_PICTURE)
    ] = None,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Show what a model attends to: a page with every kind, layer and head, or a picture of one head."""
    if (out, png, svg) == (None, None, None):
        raise BadInputError("nowhere to put it: give --out F.html, --png F.png or --svg F.svg")
    if (png, svg) == (None, None):
        idle = {"--kind": kind is not None, "--layer": layer is not None, "--head": head is not None}
        check_idle(idle, "for a picture (--png, --svg), and the page shows all heads: leave it out, or give one")
    if out is None:
        check_idle({"--mute": mute}, "for the page: give --out F.html too, or leave it out")
    check_ending("--png", png, ".png")
    check_ending("--svg", svg, ".svg")
    check_file_place(out, png, svg)
    from transduce.config.attention import AttentionHead
    from transduce.viewing import AttentionPage, draw_attention
    from transduce.workflows.attention import view_sentences

    use_threads(threads)
    sentences = view_sentences(model, text, target or None, muting=mute, precision=precision, device=device)
    # Pictures first: they may name a head that there is not, and then nothing is written.
    maps, shown = sentences[0].maps, kind or "cross"
    layers = 0 if (weights := getattr(maps, shown)) is None else len(weights)
    for path in (png, svg):
        if path is not None:
            draw_attention(maps, AttentionHead(shown, (layers if layer is None else layer) - 1, (head or 1) - 1), path)
    if out is not None:
        AttentionPage(sentences, f"Attention of {model.name}").save(out)
    for path in (out, png, svg):
        if path is not None:
            typer.echo(path)
