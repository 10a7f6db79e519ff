"""The verb ``serve``."""

from pathlib import Path
from typing import Annotated, Final

import typer

from transduce.cli.options import Cache, Device, PrecisionOption, Threads, check_finite
from transduce.config.errors import BadInputError, TransduceError

_WHO: Final = "Who may call"
_LIMITS: Final = "Limits"
_MEMORY: Final = "Memory"
_MIB: Final = 2**20


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE-TARGET=]MODEL...", help="Model or run directories, with their languages: en-de=runs/a."
        ),
    ],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = 5000,
    page: Annotated[bool, typer.Option(help="Whether there is a page at / to try the models with.")] = True,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Let in who has a key of this file, and nobody else.", rich_help_panel=_WHO),
    ] = None,
    add_key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Add a key to the file of --keys, print it and stop. Its hash is kept.",
            rich_help_panel=_WHO,
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Requests a minute of an address, or of the key that is added. [default: any number]",
            rich_help_panel=_WHO,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="Let pages of this origin call; may be given several times.",
            rich_help_panel=_WHO,
        ),
    ] = None,
    max_body: Annotated[
        float, typer.Option(metavar="MB", min=0.001, help="Of a request.", rich_help_panel=_LIMITS)
    ] = 10.0,
    max_characters: Annotated[
        int, typer.Option(metavar="N", min=1, help="Of all texts of a request.", rich_help_panel=_LIMITS)
    ] = 100_000,
    max_texts: Annotated[
        int, typer.Option(metavar="N", min=1, max=20_000, help="Of a request.", rich_help_panel=_LIMITS)
    ] = 1_000,
    max_waiting: Annotated[
        int, typer.Option(metavar="N", min=1, help="Requests under way, for each model.", rich_help_panel=_LIMITS)
    ] = 1_000,
    max_wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            help="Of work that may stand before a request; more is refused (429).",
            rich_help_panel=_LIMITS,
        ),
    ] = 10.0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="That a request may take.", rich_help_panel=_LIMITS)
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="To finish what is under way at the end.", rich_help_panel=_LIMITS),
    ] = 30.0,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Load a model when it is first asked for.", rich_help_panel=_MEMORY)
    ] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="MB",
            min=1,
            help="Of all loaded models; what was not used for the longest time leaves. Implies --lazy.",
            rich_help_panel=_MEMORY,
        ),
    ] = None,
    use_shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Write with what the models' shortlists allow.")
    ] = False,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
    cache: Cache = False,
) -> None:
    """Serve models over HTTP, for clients of LibreTranslate and DeepL, with a page to try them."""
    check_finite(max_body=max_body, max_wait=max_wait, timeout=timeout, grace=grace)
    try:
        from transduce import serving
    except ModuleNotFoundError as error:
        raise TransduceError(
            f"serving needs {error.name}, which is not installed: install the extra: pip install 'transduce[serve]'"
        ) from error

    if add_key is not None:
        if keys is None:
            raise BadInputError("--add-key: say which file it goes into: --keys F")
        print(serving.add_key(keys, add_key, rate))  # noqa: T201 - results go to standard output
        return
    if rate is not None and keys is not None:
        raise BadInputError("--rate: with --keys, each key has a rate of its own: give it with --add-key")
    serving.serve(
        serving.ServeSettings(
            serving.read_models(models),
            *(host, port, precision, device, threads, use_shortlist),
            cache=cache,
            lazy=lazy or memory is not None,
            memory=None if memory is None else memory * _MIB,
            keys=keys,
            limits=serving.Limits(
                body=round(max_body * 1e6),
                characters=max_characters,
                texts=max_texts,
                waiting=max_waiting,
                wait=max_wait,
                time=timeout,
                rate=rate,
            ),
            cors=tuple(cors or ()),
            page=page,
            grace=grace,
        )
    )
