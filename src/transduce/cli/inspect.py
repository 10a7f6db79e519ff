"""The verb ``inspect``."""

import json
from typing import Annotated

import typer


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL|PRESET", help="A model or run directory, or a preset's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model's configuration, parameters, FLOPs and memory."""
    from transduce.workflows.inspect import inspect_model

    facts = inspect_model(model)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(facts["model"])
    for part in ("configuration", "parameters", "flops", "memory"):
        typer.echo(f"\n{part}")
        for key, value in facts[part].items():
            number = isinstance(value, int) and not isinstance(value, bool)
            typer.echo(f"  {key:<24} {value:,}" if number else f"  {key:<24} {value}")
