"""The verb ``reproduce``."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, assert_never

import typer

from transduce.cli.options import SPEED, Device

if TYPE_CHECKING:
    from transduce.config import System, Table3Row

T = TypeVar("T")


def reproduce(
    table: Annotated[Literal["table2", "table3"], typer.Argument(help="Which table of the paper.", show_choices=True)],
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
        str | None,
        typer.Option(
            metavar="R,...",
            help="Comma-separated. table3: presets, or A, B, C, D, E, AOP for a part; table2: systems; the first row "
            "of the table is always among them. [default: all]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Steps of each training of table3's base, others in proportion, or of table2's systems at equal "
            "parameters. [default: 20 epochs]",
        ),
    ] = None,
    norm: Annotated[
        Literal["post", "pre"] | None,
        typer.Option(
            help="table3: where all rows have LayerNorm; post: the paper's; pre: learns in fewer steps. [default: post]"
        ),
    ] = None,
    peak_rate: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            help="table3: base's highest learning rate; that of other widths follows by the formula of section 5.3. "
            "[default: 0.004, with --norm pre 0.0063]",
        ),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(metavar="L", help="The source language. [default: what DIR has, English first]")
    ] = None,
    target_language: Annotated[str | None, typer.Option(metavar="L", help="The target language.")] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Trainings at a time, each in a process of its own with its share of the threads; with more than one, "
            "table2's equal time needs first seeds that were trained with one.",
            rich_help_panel=SPEED,
        ),
    ] = 1,
    device: Device = None,
) -> None:
    """Train the rows of a table of the paper, scaled down, on your text, and write the table beside the paper's.

    The same command goes on where it was interrupted, or where its budget ended.
    """
    from transduce.config import BadInputError
    from transduce.workflows.corpus_folder import find_corpora

    seconds = _read_time(budget)
    out = out or Path("runs") / table
    match table:
        case "table2":
            if norm is not None:
                raise BadInputError(f"--norm {norm}: is for table3: table2's systems are each what they are")
            if peak_rate is not None:
                raise BadInputError(
                    f"--peak-rate {peak_rate}: is for table3: table2's systems each have a rate of their own"
                )
            systems = _read_systems(rows)
            from transduce.lab import table2_trainings as table2

            corpora = find_corpora(data, source_language, target_language)
            plan = table2.Plan(corpora, systems, seeds, steps, own_process=True, jobs=jobs, device=device)
            table2.reproduce_table2(plan, out, typer.echo, seconds)
        case "table3":
            chosen = _read_rows(rows)
            if peak_rate is not None and not 0 < peak_rate < math.inf:
                raise BadInputError(f"--peak-rate {peak_rate}: give a number above 0, such as 0.003")
            from transduce.lab import table3_trainings as table3

            corpora = find_corpora(data, source_language, target_language)
            plan3 = table3.Plan(
                corpora, chosen, seeds, steps, norm or "post", peak_rate, own_process=True, jobs=jobs, device=device
            )
            table3.reproduce_table3(plan3, out, typer.echo, seconds)
        case _:
            assert_never(table)


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


def _read_rows(text: str | None) -> "Sequence[Table3Row]":
    """The rows named, in the table's order."""
    from transduce.config import VARIATIONS

    known = [(row, (row.part.strip("()"), row.preset)) for row in VARIATIONS]
    return _choose(text, known)


def _read_systems(text: str | None) -> "Sequence[System]":
    """The systems named, in the table's order."""
    from transduce.config import SYSTEMS

    return _choose(text, [(system, (system.name,)) for system in SYSTEMS])


def _choose(text: str | None, known: "Sequence[tuple[T, tuple[str, ...]]]") -> "Sequence[T]":
    """What is known by one of the names in ``text``; all of it where there is no text."""
    from transduce.config import BadInputError

    if text is None:
        return tuple(each for each, _ in known)
    wanted = {name.strip() for name in text.split(",")}
    names = dict.fromkeys(name for _, own in known for name in own)
    if unknown := sorted(wanted - names.keys()):
        raise BadInputError(f"--rows {unknown[0]}: choose from {', '.join(names)}")
    return tuple(each for each, own in known if wanted & set(own))
