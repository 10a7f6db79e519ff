"""The verb ``score``."""

import math
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from transduce.cli.bulk import BULK, Address, Engine, Workers, read_cluster, run_bulk
from transduce.cli.options import (
    FILES,
    Device,
    MaxSourceLength,
    ModelPath,
    PrecisionOption,
    Threads,
    check_finite,
    check_idle,
    use_threads,
)

if TYPE_CHECKING:
    from transduce.config import Precision

_LINES_AT_A_TIME: Final = 2048
_FAILED: Final = "have no score"


def score(
    model: ModelPath,
    source: Annotated[
        Path | None, typer.Option(metavar="F", help="Source text, a sentence a line.", rich_help_panel=FILES)
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="F", help="Its translation, line by line.", rich_help_panel=FILES)
    ] = None,
    max_source_length: MaxSourceLength = None,
    precision: PrecisionOption = "float32",
    device: Device = None,
    threads: Threads = None,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="F",
            help="Partitions in the place of --source and --target: a folder, a file, or a pattern in quotes such as "
            "'DIR/*.parquet'. Of text, a line is a source, a tab and a target.",
            rich_help_panel=BULK,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", metavar="DIR", help="A folder with one for each.", rich_help_panel=BULK)
    ] = "-",
    source_column: Annotated[
        str, typer.Option(metavar="NAME", help="Which column, or field, has the source.", rich_help_panel=BULK)
    ] = "source",
    target_column: Annotated[
        str, typer.Option(metavar="NAME", help="Which one has the target.", rich_help_panel=BULK)
    ] = "target",
    min_score: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Leave out pairs whose log-probability is lower than this, as a mean over the target's tokens.",
            rich_help_panel=BULK,
        ),
    ] = None,
    engine: Engine = "process",
    address: Address = None,
    workers: Workers = None,
) -> None:
    """Print each target's total log-probability (nats, end symbol counted), a line each.

    A pair that cannot be scored (one side is too long) gives nan, and is named.
    """
    from transduce.config import BadInputError

    check_finite(min_score=min_score)
    cluster = read_cluster(engine, address, workers, threads, device)
    if cluster is None:
        use_threads(threads)
    if input_ is not None:
        if source is not None or target is not None:
            raise BadInputError("--input: has both sides of its pairs: leave --source and --target out")
        from transduce.workflows.bulk_score import BulkScoring

        work = BulkScoring(model, precision, source_column, target_column, max_source_length, min_score)
        instead = "nothing stands for them" if min_score is not None else "nan, or nothing, stands for each"
        run_bulk(work, input_, output, "text", device=device, cluster=cluster, what=_FAILED, instead=instead)
        return
    if source is None or target is None:
        raise BadInputError("--source and --target: give both, two files of as many lines; or --input, with partitions")
    for_partitions = {
        "--engine ray": cluster is not None,
        "--min-score": min_score is not None,
        "--output": output != "-",
        "--source-column": source_column != "source",
        "--target-column": target_column != "target",
    }
    check_idle(
        for_partitions,
        "for partitions (--input) alone, and --source and --target are two files: leave one or the other out",
    )
    _score_files(model, source, target, max_source_length, precision, device)


def _score_files(
    model: Path, source: Path, target: Path, max_source_length: int | None, precision: "Precision", device: str | None
) -> None:
    from transduce.data import read_pairs
    from transduce.inference import load
    from transduce.workflows.requests import Failures
    from transduce.workflows.translate import in_groups

    translator, failures = load(model, precision, device), Failures()
    pairs = in_groups(read_pairs(source, target), repeat(_LINES_AT_A_TIME), lambda pair: sum(map(len, pair)))
    for block in pairs:
        values = translator.score(
            [pair[0] for pair in block],
            [pair[1] for pair in block],
            first_number=failures.lines + 1,
            max_source_length=max_source_length,
            errors="return",
        )
        for value in values:
            typer.echo(f"{value:.6f}")
            failures.count("" if math.isnan(value) else None)
    failures.check(_FAILED, "nan stands for each")
