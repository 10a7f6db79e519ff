"""The verb ``inspect``."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import typer

from transduce.config.errors import BadInputError

_PARTS: Final = ("configuration", "regime", "parameters", "flops", "memory", "training_cost")
_MILLION: Final = 1_000_000
_COST: Final = "Cost of training"


def inspect(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL|PRESET", help="A model or run directory, or a preset's name.")
    ] = None,
    table3: Annotated[
        bool,
        typer.Option("--table3", help="In place of a model: parameter counts beside those of the paper's Table 3."),
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(
            metavar="H", help="Hours of training: adds their cost, by the paper's method.", rich_help_panel=_COST
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many devices it had. [default: 1]", rich_help_panel=_COST),
    ] = None,
    device: Annotated[
        Literal["K80", "K40", "M40", "P100"] | None,
        typer.Option(metavar="NAME", help="K80, K40, M40 or P100, whose rates the paper gives.", rich_help_panel=_COST),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="TFLOPS", help="Of another device: what it sustains in single precision.", rich_help_panel=_COST
        ),
    ] = None,
    target_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Target tokens trained on: adds the counted FLOPs.", rich_help_panel=_COST
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model's configuration, parameters, FLOPs and memory, and what training it costs."""
    if table3:
        if (model, hours, devices, device, rate, target_tokens) != (None,) * 6:
            raise BadInputError("--table3 has its own models: leave out MODEL, and every option but --json")
        _print_table3(as_json)
        return
    if model is None:
        raise BadInputError("inspect what? Give a MODEL or a PRESET, or --table3")
    from transduce.workflows.cost import cost_of_time, cost_of_tokens
    from transduce.workflows.inspect import inspect_model

    cost = cost_of_time(hours, devices, device, rate)
    facts = inspect_model(model)
    if target_tokens is not None:
        cost |= cost_of_tokens(facts["flops"], target_tokens)
    _print_model(facts | ({"training_cost": cost} if cost else {}), as_json)


def _print_model(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo("\n".join(facts[line] for line in ("model", "meaning") if line in facts))
    for part in _PARTS:
        if facts.get(part):
            typer.echo("\n".join([f"\n{part}", *_lines(facts[part])]))


def _lines(values: dict[str, Any], indent: str = "  ") -> Iterator[str]:
    for key, value in values.items():
        match value:
            case {"forward": forward, "backward": backward}:
                yield f"{indent}{key:<22} {forward:>18,} {backward:>18,}"
            case dict() if value:
                yield f"{indent}{key:<24} {'forward':>18} {'backward':>18}"
                yield from _lines(value, indent + "  ")
            case _:
                yield f"{indent}{key:<24} {_shown(value)}"


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value)
        case int():
            return f"{value:,}"
        case float() if value >= _MILLION:
            return f"{value:.3g}"
        case _:
            return str(value)


def _print_table3(as_json: bool) -> None:
    from transduce.lab.parameter_counts import compare_table3

    facts = compare_table3()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    own, fitting, rows = facts["vocabulary"], facts["fitting_vocabulary"], facts["rows"]
    typer.echo(f"{'millions of parameters':<22} {'paper':>5} {f'{own:,} symbols':>16} {f'{fitting:,} symbols':>16}")
    for row in rows:
        counts = (f"{row[key] / _MILLION:>16.2f}" for key in ("parameters", "fitting_parameters"))
        typer.echo(f"{row['preset']:<22} {row['paper_millions']:>5} {' '.join(counts)}")
    first, last = facts["fitting_vocabularies"]
    typer.echo(f"\n{first:,} to {last:,} shared symbols: {_verdict(rows, 'fitting_millions_off')}.")
    typer.echo(f"{own:,} shared symbols: {_verdict(rows, 'millions_off')}.")


def _verdict(rows: list[dict[str, Any]], off: str) -> str:
    """How many rows round to what the paper prints; what the others round to, and how far off that is."""
    others = [f"{row['preset']} {row['paper_millions'] + row[off]} ({row[off]:+d})" for row in rows if row[off]]
    matching = f"{len(rows) - len(others)} of {len(rows)} rows round to the paper's figure"
    return f"{matching}; the others: {', '.join(others)}" if others else matching
