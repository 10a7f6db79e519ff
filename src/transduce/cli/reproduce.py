"""The verb ``reproduce``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from transduce.config import Table3Row


def reproduce(
    table: Annotated[Literal["table3"], typer.Argument(help="Which table of the paper.", show_choices=True)],
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where train.LANGUAGE and dev.LANGUAGE are, plain, .gz or .zst; val will do."),
    ],
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after 2h, 90m or 1h30m. [default: when all is trained]")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where it all goes. [default: runs/TABLE]")] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Trainings of each row, each with its own seed.")] = 3,
    rows: Annotated[
        str,
        typer.Option(
            metavar="R,...",
            help="Comma-separated: presets, or A, B, C, D, E, AOP for a part; base is always among them.",
        ),
    ] = "base,A,B,C,D,E,big,AOP",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Steps of each training of base; others in proportion. [default: 20 epochs]"
        ),
    ] = None,
    norm: Annotated[
        Literal["post", "pre"],
        typer.Option(help="Where all rows have LayerNorm; post: the paper's; pre: learns in fewer steps."),
    ] = "post",
    source_language: Annotated[
        str | None, typer.Option(metavar="L", help="The source language. [default: what DIR has, English first]")
    ] = None,
    target_language: Annotated[str | None, typer.Option(metavar="L", help="The target language.")] = None,
) -> None:
    """Train the rows of a table of the paper, scaled down, on your text, and write the table beside the paper's.

    The same command goes on where it was interrupted, or where its budget ended.
    """
    seconds = _read_time(budget)
    chosen = _read_rows(rows)

    from transduce.lab.table3_trainings import Plan, reproduce_table3
    from transduce.workflows.corpus_folder import find_corpora

    corpora = find_corpora(data, source_language, target_language)
    plan = Plan(corpora, chosen, seeds, steps, norm, own_process=True)
    reproduce_table3(plan, out or Path("runs") / table, typer.echo, seconds)


def _read_time(text: str | None) -> float:
    """Seconds."""
    from transduce.config import BadInputError

    if text is None:
        return float("inf")
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?", text.strip())
    try:
        parts = [float(part or 0) for part in match.groups()] if match else []
    except ValueError:  # two points in a number
        parts = []
    if not any(parts):
        raise BadInputError(f"--budget {text}: give a time with its unit, such as 2h, 90m, 1h30m or 45s")
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=True))


def _read_rows(text: str) -> "Sequence[Table3Row]":
    """The rows named, in the table's order."""
    from transduce.config import VARIATIONS, BadInputError

    wanted = {name.strip() for name in text.split(",")}
    names = {row.preset: {row.preset, row.part.strip("()")} for row in VARIATIONS}
    if unknown := sorted(wanted - set().union(*names.values())):
        parts = dict.fromkeys(name for row in VARIATIONS for name in (row.part.strip("()"), row.preset))
        raise BadInputError(f"--rows {unknown[0]}: choose from {', '.join(parts)}")
    return [row for row in VARIATIONS if wanted & names[row.preset]]
