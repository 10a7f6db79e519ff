"""What verbs have in common that read folders of partitions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from transduce.cli.progress import line_bar

if TYPE_CHECKING:
    from transduce.workflows.bulk import Work

BULK: Final = "Folders of partitions"
Column = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Which column of tables, and which field of objects, has the text. [default: text]",
        rich_help_panel=BULK,
    ),
]


def is_bulk(input_: str) -> bool:
    """Whether partitions are meant: a folder, a pattern, a table, or anything on an object store."""
    from transduce.data.places import is_address

    path = Path(input_)
    pattern = any(each in input_ for each in "*?[") and not path.exists()
    return is_address(input_) or path.is_dir() or pattern or path.suffix == ".parquet"


def run_bulk(
    work: "Work",
    input_: str,
    output: str,
    text_as: Literal["text", "jsonl"],
    *,
    device: str | None,
    what: str,
    instead: str,
) -> None:
    """Do the partitions that do not stand yet, with a bar; ``what`` and ``instead`` tell of lines that failed."""
    from transduce.workflows.bulk import finish, run_here
    from transduce.workflows.partitions import make_plan

    plan = make_plan(input_, output, text_as, work.settings)
    with line_bar(lambda: len(plan.partitions), beside_terminal=False, unit="partitions") as advance:
        outcomes = run_here(work, plan.partitions, device) if plan.partitions else ()
        finish(plan, outcomes, advance, what=what, instead=instead)
