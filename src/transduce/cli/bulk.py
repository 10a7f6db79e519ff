"""What verbs have in common that read folders of partitions, in this process or on a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from transduce.cli.progress import line_bar

if TYPE_CHECKING:
    from transduce.workflows.bulk import Work
    from transduce.workflows.cluster import Cluster

BULK: Final = "Folders of partitions, and clusters"
Engine = Annotated[
    Literal["process", "ray"],
    typer.Option(
        metavar="ENGINE", help="process: this one; ray: workers on a Ray cluster, one a core.", rich_help_panel=BULK
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="A",
        help="The cluster's head, such as 10.0.0.1:6379. [default: RAY_ADDRESS, or this machine alone]",
        rich_help_panel=BULK,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Workers at most. [default: as many as there is room for]", rich_help_panel=BULK
    ),
]
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


def read_cluster(
    engine: Literal["process", "ray"], address: str | None, workers: int | None, threads: int | None, device: str | None
) -> "Cluster | None":
    """The cluster that is asked for; None is this process.

    Raises:
        BadInputError: Something is only for a cluster, or not for one.
    """
    from transduce.config import BadInputError
    from transduce.workflows.cluster import Cluster, read_devices

    if engine == "ray":
        return Cluster(address, workers, threads or 1, read_devices(device))
    for option, given in (("--address", address), ("--workers", workers)):
        if given is not None:
            raise BadInputError(f"{option} {given}: is for a cluster: give --engine ray too, or leave it out")
    return None


def run_bulk(
    work: "Work",
    input_: str,
    output: str,
    text_as: Literal["text", "jsonl"],
    *,
    device: str | None,
    cluster: "Cluster | None",
    what: str,
    instead: str,
) -> None:
    """Do the partitions that do not stand yet, with a bar; ``what`` and ``instead`` tell of lines that failed."""
    from transduce.workflows.bulk import finish, run_partitions
    from transduce.workflows.partitions import make_plan

    plan = make_plan(input_, output, text_as, work.settings)
    with line_bar(lambda: len(plan.partitions), beside_terminal=False, unit="partitions") as advance:
        finish(plan, run_partitions(work, plan.partitions, device, cluster), advance, what=what, instead=instead)
